"""The producer: keeps appending rows to the files of all partitions there are, until SIGTERM."""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path

from files import TOPIC, TOPICS_FILE, append, folder_of

ROWS, PAUSE_S = 20, 0.25


def main(data: Path) -> None:
    """Append a file to each partition again and again; new partitions are seen by themselves."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    ends: dict[int, int] = {}
    while not stop.wait(PAUSE_S):
        for partition in range(json.loads((data / TOPICS_FILE).read_text())[TOPIC]):
            first = ends.get(partition, 0)
            values = [f"click {partition}/{offset}" for offset in range(first, first + ROWS)]
            append(folder_of(data, TOPIC, partition), first, values)
            ends[partition] = first + ROWS


if __name__ == "__main__":
    main(Path(sys.argv[1]))
