"""A worker as users write it, on librdkafka; what befalls it goes out as JSON lines.

`python librdkafka.py '{"subscribe": ["clicks"], "config": {"bootstrap.servers": …}}'` joins, resumes each
partition that it is given where the last owner stopped, and commits a little more again and again.
SIGTERM makes it leave. Times are those of the machine's monotonic clock, the same in all processes.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, TopicPartition

POLL_S = 0.02
WORK_S = 0.25
PATIENCE_S = 5.0


def say(what, **fields):
    line = {"at": time.monotonic(), "what": what} | fields
    sys.stdout.write(f"{json.dumps(line)}\n")
    sys.stdout.flush()


def names(partitions):
    return [f"{one.topic}/{one.partition}" for one in partitions]


class Member:
    """Holds partitions from `assign` to `revoke`; nobody else may meanwhile."""

    def __init__(self, config, subscribe):
        self.offsets = {}
        """By (topic, partition); None until it is known where to resume."""
        self.consumer = Consumer(
            {"group.protocol": "consumer", "enable.auto.commit": False} | config
        )
        self.consumer.subscribe(
            subscribe, on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.lost
        )

    def assigned(self, _consumer, partitions):
        say("assign", partitions=names(partitions), member=self.consumer.memberid())
        self.offsets |= {(one.topic, one.partition): None for one in partitions}

    def revoked(self, _consumer, partitions):
        self.commit([(one.topic, one.partition) for one in partitions])
        self.forget(partitions)
        say("revoke", partitions=names(partitions))

    def lost(self, _consumer, partitions):
        self.forget(partitions)
        say("lost", partitions=names(partitions))

    def forget(self, partitions):
        for one in partitions:
            self.offsets.pop((one.topic, one.partition), None)

    def work(self):
        """Do one more piece of each partition, and commit that."""
        self.resume([key for key, offset in self.offsets.items() if offset is None])
        known = [key for key, offset in self.offsets.items() if offset is not None]
        for key in known:
            self.offsets[key] += 1
        self.commit(known)

    def resume(self, keys):
        if not keys:
            return
        asked = [TopicPartition(*key) for key in keys]
        try:
            found = self.consumer.committed(asked, PATIENCE_S)
        except KafkaException as error:
            say("error", message=str(error))
            return
        for one in found:
            offset = 0 if one.offset == OFFSET_INVALID else one.offset
            self.offsets[one.topic, one.partition] = offset
            say("resume", partition=f"{one.topic}/{one.partition}", offset=offset)

    def commit(self, keys):
        offsets = [
            TopicPartition(*key, self.offsets[key])
            for key in keys
            if self.offsets.get(key) is not None
        ]
        if not offsets:
            return
        began = time.monotonic()
        say("try", offsets=dict(zip(names(offsets), (one.offset for one in offsets), strict=True)))
        try:
            done = self.consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            say("refused", began=began, message=error.args[0].name())
            return
        say("commit", began=began, offsets={names([o])[0]: o.offset for o in done if not o.error})

    def run(self, stop):
        next_work = 0.0
        while not stop.is_set():
            message = self.consumer.poll(POLL_S)
            if message is not None and message.error():
                say("error", message=message.error().name())
            if time.monotonic() >= next_work:
                self.work()
                next_work = time.monotonic() + WORK_S
        self.consumer.close()
        say("closed")


def main():
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    told = json.loads(sys.argv[1])
    Member(told["config"], told["subscribe"]).run(stop)


if __name__ == "__main__":
    main()
