"""Build a SparkSession with Delta, independent of the user's Maven and Ivy folders."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from coordinator.config import ConfigError
from coordinator.errors.texts import gist
from coordinator.extras import require
from spark_jobs import jars
from spark_jobs.session.package_files import conf_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""Without these a session cannot read or write Delta tables."""

LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""Only for drivers whose executors are on the same machine."""

LOCAL_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.retentionDurationCheck.enabled": "true",
}
"""Settings for fast sessions on one machine; conf/spark-defaults.conf gives the reasons."""

REMOTE = "SPARK_REMOTE"
"""The environment variable that names a Spark Connect server."""
CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
"""The environment variable by which pyspark makes every session one of Spark Connect."""
CONNECT_S = 5.0
ERROR_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Where pyspark logs errors of queries when it raises them."""

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""JVM options for a process that runs for minutes: optimising would take longer than it saves.

Without the optimising compiler the JVM reserves 48 MiB for compiled code instead of 240. Spark
fills that in a minute; then nothing more is compiled and queries may fail, so the size is raised.
"""


def spark_session(
    app_name: str = "muster", master: str | None = None, conf: dict[str, str] | None = None
) -> SparkSession:
    """Return the running session, or start one that can read and write Delta tables.

    Parameters
    ----------
    app_name
        Shown in Spark's own pages and logs.
    master
        Where to run; None for spark-submit's master, else local[*].
    conf
        Spark settings that override Muster's.

    Returns
    -------
    SparkSession
        The active one as it is, where there is one: `app_name`, `master` and `conf` change nothing.
        Else what Spark's `getOrCreate` makes of them; `stop()` ends it.

    Raises
    ------
    JarsMissingError
        Java or Delta's jars are missing. The message says what to do.
    MissingExtraError
        `muster[spark]` is not installed.
    ConfigError
        The environment names a Spark Connect server (SPARK_REMOTE) that does not answer, or the
        packages for it are missing.
    """
    require("a Spark session", "spark")
    from pyspark.sql import SparkSession  # noqa: PLC0415 - a coordinator never imports pyspark

    if SparkSession.getActiveSession() is None:
        _raise_without_logging()
    if master is None and CONNECT_MODE in os.environ:
        return SparkSession.builder.getOrCreate()  # it may be of another thread
    if master is None and REMOTE in os.environ:
        return _connect(os.environ[REMOTE])
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if jars.java_command() is None:
        raise jars.JarsMissingError(
            "Java 17 or later is missing: sudo apt-get install openjdk-17-jre-headless"
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # or workers would start another Python
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    settings = dict(DELTA_CONF)
    if not submitted:
        settings |= LOCAL_CONF
        if (master or "local").startswith("local"):
            settings |= LOOPBACK
        settings["spark.driver.extraJavaOptions"] = log_option()
        if not jars.in_spark():
            settings["spark.jars"] = ",".join(map(str, jars.delta_jars()))
    settings |= {"spark.app.name": app_name} | (conf or {})
    if master is not None or not submitted:
        settings["spark.master"] = master or "local[*]"
    _keep_interrupts(settings)
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _keep_interrupts(settings: Mapping[str, str]) -> None:
    """Start the context, which the session takes then, where SIGINT is ours to handle.

    pyspark's context replaces the handler by one that calls the JVM, at any moment.
    """
    before, here = signal.getsignal(signal.SIGINT), threading.current_thread()
    if before is signal.default_int_handler or here is not threading.main_thread():
        return
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - as above

    SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
    signal.signal(signal.SIGINT, before)


def _raise_without_logging() -> None:
    """Keep pyspark from writing to stderr, as JSON with a stack trace, what it also raises."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - as above

    for name in ERROR_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _connect(url: str) -> SparkSession:
    """Return the session of a Spark Connect server; its settings are the server's."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as above
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the same

    where = "local" if url.startswith("local") else _answering_server(url)
    try:
        return SparkSession.builder.remote(url).getOrCreate()
    except (ImportError, PySparkException) as error:
        missing = isinstance(error, ImportError) or "PACKAGE_NOT_INSTALLED" in str(error)
        remedy = ": pip install 'muster[connect]'" if missing else ""
        raise ConfigError(
            f"{REMOTE}={where}: Spark Connect cannot be used: {gist(error)}{remedy}"
        ) from None


def _answering_server(url: str) -> str:
    """Return a server's URL without what may be a token, once it answers.

    Its client would try in silence for ten minutes.
    """
    host = None
    with suppress(ValueError):
        found = urlsplit(url)
        host, port = found.hostname, found.port or 15002
    if not host or found.scheme != "sc":
        raise ConfigError(f"{REMOTE} is not an sc://HOST:PORT of a server: give one, or unset it")
    server = f"sc://{host}:{port}"
    try:
        socket.create_connection((host, port), CONNECT_S).close()
    except OSError as error:
        raise ConfigError(
            f"{REMOTE}={server}: no Spark Connect server answers there ({error}): start it, or "
            f"unset {REMOTE}"
        ) from None
    return server


def scratch_warehouse() -> dict[str, str]:
    """Return the setting that keeps commands from leaving spark-warehouse in the user's folder."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # under spark-submit, the user's settings hold
        return {}
    folder = os.path.join(tempfile.gettempdir(), f"muster-warehouse-{uuid.uuid4()}")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return {"spark.sql.warehouse.dir": folder}


def active_tasks() -> tuple[int, int]:
    """Return how many tasks of Spark's running stages are done, and their number."""
    from pyspark import SparkContext  # noqa: PLC0415 - as above

    context = SparkContext._active_spark_context  # noqa: SLF001 - of any session
    if context is None:
        return 0, 0
    tracker = context.statusTracker()
    stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
    running = [stage for stage in stages if stage is not None]
    return sum(s.numCompletedTasks for s in running), sum(s.numTasks for s in running)


def log_option() -> str:
    """Return the JVM options that limit Spark's log to warnings and errors, on stderr."""
    ours = conf_file("log4j2.properties").as_uri()
    return f"-Dlog4j2.configurationFile={ours} -Dfile.encoding=UTF-8"
