"""Build a SparkSession with Delta, independent of the user's Maven and Ivy folders."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import uuid
from typing import TYPE_CHECKING

from coordinator.config import ConfigError
from spark_jobs import jars
from spark_jobs.session.package_files import conf_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""Without these a session cannot read or write Delta tables."""

LOCAL_CONF = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.retentionDurationCheck.enabled": "true",
}
"""Settings for fast sessions on one machine; conf/spark-defaults.conf gives the reasons."""

CONNECT = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
"""Environment variables that make every session a Spark Connect session."""

IN_DRIVER = (
    "Muster's jobs need the driver's JVM: submit them with spark-submit, or build the session in "
    "the driver with spark_jobs.session.spark_session()"
)

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

    Raises
    ------
    JarsMissingError
        Java or Delta's jars are missing. The message says what to do.
    ConfigError
        The environment names a Spark Connect server.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - a coordinator never imports pyspark

    for name in CONNECT:
        if name in os.environ:
            raise ConfigError(f"{name}={os.environ[name]}: {IN_DRIVER}; unset {name}")
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
        settings["spark.driver.extraJavaOptions"] = log_option()
        if not jars.in_spark():
            settings["spark.jars"] = ",".join(map(str, jars.delta_jars()))
    builder = SparkSession.builder.appName(app_name)
    for key, value in (settings | (conf or {})).items():
        builder = builder.config(key, value)
    if master is not None or not submitted:
        builder = builder.master(master or "local[*]")
    return builder.getOrCreate()


def scratch_warehouse() -> dict[str, str]:
    """Return the setting that keeps commands from leaving spark-warehouse in the user's folder."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # under spark-submit, the user's settings hold
        return {}
    folder = os.path.join(tempfile.gettempdir(), f"muster-warehouse-{uuid.uuid4()}")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return {"spark.sql.warehouse.dir": folder}


def check_in_driver(spark: SparkSession) -> None:
    """Refuse a Spark Connect session: Muster's jobs need the driver's JVM, which it does not have.

    Raises
    ------
    ConfigError
        The session is a Spark Connect session.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ConfigError(f"this is a Spark Connect session: {IN_DRIVER}")


def active_tasks() -> tuple[int, int]:
    """Return how many tasks of Spark's running stages are done, and their number."""
    from pyspark import SparkContext  # noqa: PLC0415 - as above

    context = SparkContext._active_spark_context  # noqa: SLF001 - whatever session it belongs to
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
