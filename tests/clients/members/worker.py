"""What a worker does, on whatever client: takes partitions, works, commits, lets go; and says so.

It prints what happens to it as JSON lines. Times are those of the machine's monotonic clock, the same in
all processes.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time

POLL_S = 0.02
WORK_S = 0.25
PATIENCE_S = 5.0


class RefusedError(Exception):
    """A commit or a fetch of offsets failed; the message is the reason."""


def say(what, **fields):
    line = {"at": time.monotonic(), "what": what} | fields
    sys.stdout.write(f"{json.dumps(line)}\n")
    sys.stdout.flush()


def name_of(key):
    return f"{key[0]}/{key[1]}"


class Worker:
    """Holds partitions from `assigned` to `revoked`; no other member may meanwhile.

    A partition is named by (topic, number). A client's own subclass says how offsets are read and
    written, and calls `assigned`, `revoked` and `lost` where the client calls back.
    """

    def __init__(self):
        self.offsets = {}
        """By partition; None until it is known where to resume."""

    def read_offsets(self, keys):
        """Return the committed offset of each partition, or None; else raise RefusedError."""
        raise NotImplementedError

    def write_offsets(self, offsets):
        """Commit, and return what was acknowledged; else raise RefusedError."""
        raise NotImplementedError

    def assigned(self, keys, **fields):
        say("assign", partitions=[name_of(key) for key in keys], **fields)
        self.offsets |= dict.fromkeys(keys)

    def revoked(self, keys):
        self.commit(keys)
        self.forget(keys)
        say("revoke", partitions=[name_of(key) for key in keys])

    def lost(self, keys):
        self.forget(keys)
        say("lost", partitions=[name_of(key) for key in keys])

    def forget(self, keys):
        for key in keys:
            self.offsets.pop(key, None)

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
        try:
            found = self.read_offsets(keys)
        except RefusedError as error:
            say("error", message=str(error))
            return
        for key in found.keys() & self.offsets.keys():  # some may have gone while it was asked
            self.offsets[key] = found[key] or 0
            say("resume", partition=name_of(key), offset=self.offsets[key])

    def commit(self, keys):
        offsets = {key: self.offsets[key] for key in keys if self.offsets.get(key) is not None}
        if not offsets:
            return
        began = time.monotonic()
        say("try", offsets=named(offsets))
        try:
            done = self.write_offsets(offsets)
        except RefusedError as error:
            say("refused", began=began, message=str(error))
            return
        say("commit", began=began, offsets=named(done))


def named(offsets):
    return {name_of(key): offset for key, offset in offsets.items()}


def arguments():
    """Return what a member is to subscribe to, and its settings, as {name with dots: value}."""
    words = json.loads(sys.argv[1])
    return words["subscribe"], words["config"]


def run(worker, poll, close):
    """Poll and work until SIGTERM, then leave."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    next_work = 0.0
    while not stop.is_set():
        poll()
        if time.monotonic() >= next_work:
            worker.work()
            next_work = time.monotonic() + WORK_S
    close()
    say("closed")
