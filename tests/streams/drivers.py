"""Spark drivers as processes of their own, for tests that kill, stop and wake them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

from tests.conftest import ROOT
from tests.streams.kafka import environment
from tests.support.spark.kafka_jars import kafka_source_jars


class Driver:
    """A Python script with a session of Spark's, in a process group with its JVM."""

    def __init__(self, folder, name, script, *words):
        self.name, self.errors = name, folder / f"{name}.log"
        jars = ",".join(map(str, kafka_source_jars()))
        submit = f"--driver-memory 512m --jars {jars} pyspark-shell"
        with self.errors.open("a") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(script), *map(str, words)],
                stdout=errors, stderr=errors, cwd=ROOT, start_new_session=True,
                env=environment() | {"PYSPARK_SUBMIT_ARGS": submit},
            )  # fmt: skip

    def signal(self, number):
        """Tell the driver and its JVM."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def end(self, patience_s=60):
        """Ask it to leave, and return what it returned."""
        self.signal(signal.SIGCONT)
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(patience_s)
        finally:
            self.kill()

    def kill(self):
        """End it at once, with its JVM."""
        self.signal(signal.SIGKILL)
        self.process.wait()

    def messages(self):
        """Return what it wrote."""
        return self.errors.read_text()
