"""What a cluster needs that one machine does not: executors, files that they see, our code there.

Executors need Python for the assignor `weighted` and for tables of many groups only: numpy, pandas,
pyarrow and scipy, no Muster. Its package `assignors` is sent along as a zip, so it is the driver's.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import re
import shutil
import tempfile
import threading
import weakref
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import assignors
from coordinator.config import ConfigError
from coordinator.storage.tables.store_files import is_remote
from coordinator.storage.tables.table_io import BusyError
from spark_jobs.session.connect import is_connect
from spark_jobs.session.kinds import SessionKind, kind_of
from spark_jobs.session.object_store import spark_pattern

SAY_AFTER_S = 15.0
"""After so long without an executor, and again each time that long, a warning says so."""
PROBED_TASKS_MAX = 64
ATTEMPTS = 3
Done = TypeVar("Done")
_WAITING = "muster-waits-for-executors"
_OLD_ENTRY = (1980, 1, 1, 0, 0, 0)
_ABSENT = re.compile(
    r"FileNotFoundException|PATH_NOT_FOUND|NoSuchFileException|FILE_NOT_EXIST|does not exist"
)
_PYTHON_PACKAGES = ("numpy", "pandas", "pyarrow", "scipy")
_LACKS = re.compile(r"No module named '([\w.]+)'|PACKAGE_NOT_INSTALLED\] (\w+)")
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')
_OTHER_PYTHON = re.compile(r"PYTHON_VERSION_MISMATCH\]?[^:]*: ?(.+)|(Python in worker has .+)")
_LOST = ("CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND", "Checkpoint block rdd_")
logger = logging.getLogger("muster.spark")
_given_code: weakref.WeakSet[Any] = weakref.WeakSet()
_lock = threading.Lock()


def give_code(spark: SparkSession) -> None:
    """Give tasks the package `assignors`, once a driver or a Connect session."""
    kind = kind_of(spark)
    if kind.has_own_python():
        return
    session: Any = spark
    key = session.client if is_connect(spark) else session.sparkContext
    with _lock:
        if key not in _given_code:
            kind.add_python(_zip_code())
            _given_code.add(key)


def _zip_code() -> str:
    """Return the path of a zip of `assignors`, named by its content, until this process ends."""
    root = Path(assignors.__file__).parent
    files = sorted(root.rglob("*.py"))
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
    folder = tempfile.mkdtemp(prefix="muster-code-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, f"muster_assignors_{digest}.zip")
    with zipfile.ZipFile(path, "w") as packed:
        for file in files:
            name = file.relative_to(root.parent).as_posix()
            packed.writestr(zipfile.ZipInfo(name, _OLD_ENTRY), file.read_bytes())
    return path


def await_executors(spark: SparkSession, timeout_s: float, tag: str | None = None) -> None:
    """Wait until a task runs, and say so while none does: Spark itself would wait in silence.

    Parameters
    ----------
    timeout_s
        Then the wait is given up.
    tag
        The tag of this thread's jobs, if they have one.

    Raises
    ------
    BusyError
        No executor ran a task in time.
    """
    kind = kind_of(spark)
    if kind.executors() > 0:
        return
    if tag is None:
        with kind.tagged(_WAITING, "Muster waits for executors"):
            _await_task(kind, timeout_s, _WAITING)
    else:
        _await_task(kind, timeout_s, tag)


def _await_task(kind: SessionKind, timeout_s: float, tag: str) -> None:
    done, given_up = threading.Event(), threading.Event()

    def watch() -> None:
        left = timeout_s
        while left > 0 and not done.wait(min(SAY_AFTER_S, left)):
            left -= SAY_AFTER_S
            if left > 0:
                logger.warning("%s", _no_executor(kind))
        if not done.is_set():
            given_up.set()
            kind.cancel(tag)

    threading.Thread(target=watch, name="muster-executors", daemon=True).start()
    try:
        kind.spark.range(1).agg(F.count("*")).collect()
    except Exception as error:
        if not given_up.is_set():
            raise
        raise BusyError(f"{_no_executor(kind)}; given up after {timeout_s:g} s") from error
    finally:
        done.set()


def _no_executor(kind: SessionKind) -> str:
    return f"no executor of {kind.place()} runs a task: {kind.why_idle()}"


def check_seen(spark: SparkSession, files: Sequence[str]) -> None:
    """Check that executors see files of this machine; URLs of object stores are not looked at.

    Parameters
    ----------
    files
        Paths of files that exist here, none of them empty or hidden.

    Raises
    ------
    ConfigError
        They do not. Without this check an executor would write to its own disk, where no one reads.
    """
    kind = kind_of(spark)
    here = [file for file in files if not is_remote(file)]
    if kind.is_local() or not here:
        return
    tasks = min(kind.parallelism() * 2, PROBED_TASKS_MAX)
    for file in here:
        try:
            # Each task opens the file; how often it is named makes Spark use all executors.
            found = spark.read.format("binaryFile").load([spark_pattern(file)] * tasks)
            found.select("length").collect()
        except Exception as error:
            if not _ABSENT.search(str(error)):
                raise
            raise ConfigError(
                f"{file} is on this machine's disk, and executors of {kind.place()} do not see it: "
                "name a place that all machines reach, such as s3://BUCKET/FOLDER, or mount the "
                "same folder on each of them"
            ) from None


@contextmanager
def failures_explained() -> Iterator[None]:
    """Say in one line what executors' Python lacks.

    Raises
    ------
    ConfigError
        It cannot be started, is of another version, or lacks a package.
    """
    try:
        yield
    except Exception as error:
        reason = _explain_python(str(error))
        if reason is None:
            raise
        raise ConfigError(f"{reason}; a group that the driver assigns does without") from None


def _explain_python(text: str) -> str | None:
    remedy = (
        "name it by PYSPARK_PYTHON or spark.pyspark.python (for Spark Connect by PYSPARK_PYTHON, "
        "where its server is started)"
    )
    if found := _NO_PYTHON.search(text):
        return f"executors have no Python at {found[1]}: install it there, and {remedy}"
    if found := _OTHER_PYTHON.search(text):
        version = (found[1] or found[2]).strip().rstrip(".")
        return f"executors have a different Python from the driver: {version}; {remedy}"
    found = _LACKS.search(text)
    package = (found[1] or found[2]).partition(".")[0].lower() if found else ""
    if package in _PYTHON_PACKAGES:
        wanted = " ".join(_PYTHON_PACKAGES)
        return f"executors' Python has no {package}: run there `pip install {wanted}`, or {remedy}"
    return None


def try_again_if_lost(work: Callable[[], Done]) -> Done:
    """Do a piece of work, and again from its beginning when executors die with rows of it.

    Kept rows are a local checkpoint: what was on an executor that is gone cannot be recomputed.
    """
    for attempt in range(1, ATTEMPTS):
        try:
            return work()
        except Exception as error:
            if not any(text in str(error) for text in _LOST):
                raise
            logger.warning(
                "an executor was lost with cached rows: starting over (%d of %d)",
                attempt + 1,
                ATTEMPTS,
            )
    return work()
