"""A standalone Spark cluster of the pyspark wheel: a master and workers, each in its own folder.

Its executors' Python has the packages that Muster's documentation asks for, and no Muster.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from spark_jobs.jars import spark_jars
from tests.support.processes import start

PACKAGES = ("numpy", "pandas", "pyarrow", "scipy", "dateutil", "six.py", "pytz", "tzdata")
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_WAIT_S = 120


def bare_python(folder: Path, without: str = "") -> str:
    """Make an environment that has the packages of executors only; return its Python."""
    command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True, timeout=60)
    (site,) = folder.glob("lib/python3*/site-packages")
    ours = next(Path(at) for at in sys.path if (Path(at) / "pyarrow").is_dir())
    for name in PACKAGES:
        for found in (ours / name, ours / f"{name}.libs"):
            if found.exists() and name != without:
                (site / found.name).symlink_to(found)
    return str(folder / "bin" / "python")


def spark_home(folder: Path) -> Path:
    """Make a Spark whose own folder is a new one: `local-cluster` leaves its work there."""
    folder.mkdir()
    for part in spark_jars().parent.iterdir():
        (folder / part.name).symlink_to(part)
    return folder


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            status = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(status[1]) == pid:
                found.append(int(entry.name))
    return found


@dataclass
class Cluster:
    """A running cluster.

    Attributes
    ----------
    url
        Its master.
    workers
        Processes.
    """

    folder: Path
    url: str
    processes: list[subprocess.Popen] = field(default_factory=list)
    workers: list[subprocess.Popen] = field(default_factory=list)

    @classmethod
    def start(cls, folder: Path, workers: int = 2, hidden: Path | None = None) -> Cluster:
        """Start a master and workers of one core and 1 GiB each.

        Parameters
        ----------
        hidden
            A folder that workers see empty, as if it was on another machine.
        """
        folder.mkdir(exist_ok=True)
        cluster = cls(folder, "")
        master = ["master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        cluster.processes.append(cluster._begin("master", *master))
        cluster.url = cluster._await("master", _URL)[1]
        for at in range(workers):
            cluster.add_worker(f"worker{at}", hidden)
        return cluster

    def add_worker(self, name: str, hidden: Path | None = None) -> None:
        """Start one more worker."""
        command = ["worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1"]
        command += ["--memory", "1g", "--work-dir", str(self.folder / name), self.url]
        self.workers.append(self._begin(name, *command, hidden=hidden))
        self.processes.append(self.workers[-1])
        self._await(name, re.compile("Successfully registered with master"))

    def executors(self, at: int) -> list[int]:
        """Return the executors of a worker."""
        return children(self.workers[at].pid)

    def kill_executors(self, at: int) -> None:
        """Kill -9 the executors of a worker, which starts others."""
        for pid in self.executors(at):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_worker(self, at: int) -> None:
        """Kill -9 a worker and its executors, as if the machine was gone."""
        pids = self.executors(at)
        self.workers[at].kill()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """End all processes."""
        for at in range(len(self.workers)):
            self.kill_worker(at)
        for process in self.processes:
            process.kill()
            process.wait()

    def _begin(self, name: str, kind: str, *words: str, hidden: Path | None = None):
        folder = self.folder / name
        folder.mkdir()
        home = spark_jars().parent
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *words]
        if hidden is not None:
            hide = f'mount -t tmpfs none "{hidden}" && exec "$@"'
            command = ["unshare", "--mount", "sh", "-c", hide, "sh", *command]
        env = {name: value for name, value in os.environ.items() if "PYTHON" not in name}
        env |= {"SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m"}
        env |= {"SPARK_DAEMON_JAVA_OPTS": QUICK}
        with open(folder / "log", "wb") as log:
            return start(
                command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True
            )

    def _await(self, name: str, said: re.Pattern) -> re.Match:
        until = time.monotonic() + _WAIT_S
        while time.monotonic() < until:
            text = (self.folder / name / "log").read_text(errors="replace")
            if found := said.search(text):
                return found
            if self.processes and self.processes[-1].poll() is not None:
                break
            time.sleep(0.1)
        raise TimeoutError(f"{name} did not start: {text[-2000:]}")


def can_hide() -> bool:
    """Whether processes can be given file systems of their own here."""
    command = shutil.which("unshare")
    if command is None:
        return False
    return subprocess.run([command, "--mount", "true"], check=False).returncode == 0
