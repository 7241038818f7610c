"""A partition that is led, with a follower in the same process, which follows at once."""

from __future__ import annotations

from uuid import UUID

from coordinator.kraft.leading import Leadership, Standing
from coordinator.kraft.led_partition import LedPartition
from coordinator.kraft.log_files import LogFile
from coordinator.kraft.metadata_image import Partition
from coordinator.kraft.partition_log import PartitionLog

NODE, OTHER = 1001, 1
TOPIC_ID = UUID(int=7)
WEEK_MS = 7 * 86_400_000


class Follower:
    """Broker 1, which has what the leader has as soon as that says that there is something."""

    def __init__(self):
        self.log, self.raw, self.led = PartitionLog(), b"", None
        self.follows, self._busy = True, False

    def pull(self):
        if not self.follows or self._busy or self.led is None:
            return
        self._busy = True
        log, led = self.log, self.led
        while True:
            led.note_fetch(OTHER, 11, log.end, led.epoch, log.last_epoch)
            data = led.fetch(log.end, led.epoch, log.last_epoch, 1_000, replica=True).data
            if not data:
                break
            accepted = log.check(data, led.epoch)
            log.append(accepted)
            self.raw += accepted.data
        self._busy = False


class Led:
    """A partition that is led in one epoch after the other, and its follower."""

    def __init__(self, folder, commit_s=0.2):
        self.file = LogFile(str(folder), TOPIC_ID, WEEK_MS)
        self.follower, self.epoch, self.commit_s = Follower(), 4, commit_s
        self.standing = Standing(60_000)
        for _ in range(2):
            self.standing.hear_metadata()

    def elect(self, isr=(NODE, OTHER), least=2, bytes_max=1_048_588):
        """Lead in the next epoch."""
        self.epoch += 1
        given = (NODE, OTHER), isr, (), (), NODE, self.epoch, self.epoch + 10, 0, (), ()
        leadership = Leadership(self.file.log, NODE, Partition(*given), least, 0.0, 30.0)
        led = LedPartition(
            3, self.file, leadership, bytes_max, self.standing, self.follower.pull, self.commit_s
        )
        self.follower.led = led
        self.follower.pull()
        return led
