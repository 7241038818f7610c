"""Coordinators' logs in processes of their own, for tests that stop, kill and race real ones.

Says what it did on standard output, a JSON object a line; standard input tells it to go on.
"""

from __future__ import annotations

import json
import os
import sys
import time

from coordinator.storage.delta_log import DeltaLog
from coordinator.storage.record_log import WriterFenced
from tests.support.lives import life


def tell(**what):
    os.write(1, json.dumps(what).encode() + b"\n")


def contend(store, count):
    """Fork contenders, and let them claim at the same moment."""
    gate, opener = os.pipe()
    for at in range(int(count)):
        if os.fork() == 0:
            os.close(opener)
            os.read(gate, 1)  # until the parent closes its end
            _claim_and_write(store, f"c{at}")
            os._exit(0)
    os.close(opener)
    for _ in range(int(count)):
        assert os.wait()[1] == 0


def _claim_and_write(store, name):
    """Claim until it works; then write one batch."""
    log = DeltaLog(store)
    while True:
        try:
            epoch = log.claim(name, "", 1)
            break
        except WriterFenced:
            pass
    try:
        tell(epoch=epoch, position=log.append(life(epoch), epoch + 1))
    except WriterFenced:
        tell(epoch=epoch, fenced=True)


def append(store):
    """Claim, and append until fenced; again for every line on standard input."""
    for _ in sys.stdin:
        log = DeltaLog(store)
        tell(epoch=log.claim("writer", "", 1))
        try:
            for epoch in range(2, 10_000):
                tell(position=log.append(life(epoch), epoch))
        except WriterFenced as error:
            tell(fenced=str(error))


def look(store):
    """Claim, and then write nothing, until fenced; again for every line on standard input."""
    for _ in sys.stdin:
        log = DeltaLog(store)
        tell(epoch=log.claim("quiet", "", 1))
        try:
            while True:
                log.look()
                tell(looked=True)
                time.sleep(0.01)
        except WriterFenced as error:
            tell(fenced=str(error))


if __name__ == "__main__":
    {"contend": contend, "append": append, "look": look}[sys.argv[1]](*sys.argv[2:])
