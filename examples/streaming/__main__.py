"""A pipeline that loses workers and its driver, and no row: `python examples/streaming [folder]`.

With `--store s3://bucket/folder` the drivers share a store in S3; each works in a
folder of its own, as on two machines. What is streamed stays in the folder.

A producer appends Parquet files, two workers read the partitions that they own, a driver
coordinates them and streams their output on. Then a worker is killed, another one joins, the topic
grows, and the driver is killed while a second one stands by. At the end, every row that was
produced is in the output once.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from deltalake import DeltaTable
from files import rows_in, write_topics

HERE = Path(__file__).resolve().parent
PATIENCE_S = 120.0


class Story:
    """The processes, and the folder that they share."""

    def __init__(self, root: Path, store: str) -> None:
        self.root, self.data, self.output = root, root / "data", root / "output"
        self.store = store
        self.address = f"127.0.0.1:{_free_port()}"
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, program: str, *words: str) -> None:
        """Start a program of this folder, in a folder of its own."""
        command = [sys.executable, str(HERE / f"{program}.py"), *words]
        place = self.root / "machines" / name
        place.mkdir(parents=True, exist_ok=True)
        own = {"TMPDIR": str(place)}
        self.running[name] = subprocess.Popen(  # noqa: S603 - our own programs
            command, start_new_session=True, cwd=place, env=os.environ | own
        )

    def driver(self, name: str) -> None:
        """Start a driver; a second one stands by."""
        self.start(name, "driver", str(self.root), self.address, self.store)

    def worker(self, name: str) -> None:
        """Start a worker."""
        self.start(name, "worker", name, self.address, str(self.data), str(self.output))

    def end(self, name: str, how: signal.Signals) -> None:
        """Send a signal to a program and all that it started, and wait for its end."""
        process = self.running.pop(name)
        os.killpg(process.pid, how)
        process.wait()

    def rows_out(self) -> int:
        """Return how many rows the output has."""
        if not DeltaTable.is_deltatable(str(self.output)):
            return 0
        return int(DeltaTable(str(self.output)).to_pyarrow_dataset().count_rows())

    def more(self, rows: int) -> None:
        """Wait until so many more rows were written."""
        wanted = self.rows_out() + rows
        self.wait_for(lambda: self.rows_out() >= wanted, f"{rows} more rows")

    def wait_for(self, found, what: str) -> None:  # noqa: ANN001 - any condition
        """Wait for something."""
        until = time.monotonic() + PATIENCE_S
        while not found():
            if time.monotonic() > until:
                sys.exit(f"story: {what} did not come within {PATIENCE_S:.0f} s")
            time.sleep(0.2)

    def close(self) -> None:
        """End what is left."""
        for name in list(self.running):
            self.end(name, signal.SIGKILL)


def main(root: Path, store: str) -> None:
    """Tell the story."""
    story = Story(root, store)
    try:
        tell(story)
    finally:
        story.close()


def tell(story: Story) -> None:
    """Let things happen, then check."""
    say(f"two workers, four partitions, in {story.root}")
    write_topics(story.data, 4)
    story.start("producer", "producer", str(story.data))
    story.driver("driver-1")
    story.worker("ann")
    story.worker("bob")
    story.more(500)
    say("a driver stands by; bob is killed; cid joins; two partitions come")
    story.driver("driver-2")
    story.end("bob", signal.SIGKILL)
    story.worker("cid")
    write_topics(story.data, 6)
    story.more(1_000)
    say("the driver is killed; the other one takes over")
    story.end("driver-1", signal.SIGKILL)
    story.more(1_000)
    say("the producer stops; what it made is worked off")
    story.end("producer", signal.SIGTERM)
    story.wait_for(lambda: story.rows_out() >= rows_in(story.data), "the last row")
    time.sleep(1)  # were there a row too many, it would come now
    story.end("ann", signal.SIGTERM)
    story.end("cid", signal.SIGTERM)
    check(story)


def check(story: Story) -> None:
    """Every row that was produced is in the output, once."""
    keys = DeltaTable(str(story.output)).to_pyarrow_table(columns=["topic", "partition", "offset"])
    rows, produced = len(keys), rows_in(story.data)
    distinct = len(keys.group_by(keys.column_names).aggregate([]))
    say(f"count(*) = {rows}, count(distinct) = {distinct}, rows produced = {produced}")
    if not rows == distinct == produced:
        sys.exit("story: rows were lost or written twice")


def say(what: str) -> None:
    """Tell what happens."""
    print(f"story: {what}", flush=True)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


if __name__ == "__main__":
    words = argparse.ArgumentParser(prog="python examples/streaming", description=__doc__)
    words.add_argument("folder", nargs="?", type=Path, help="by default a temporary one")
    words.add_argument("--store", help="the coordinator's; by default in the folder")
    given = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="muster-streaming-") as temporary:
        folder = (given.folder or Path(temporary)).absolute()
        main(folder, given.store or str(folder / "store"))
