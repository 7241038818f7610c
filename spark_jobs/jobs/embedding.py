"""Embed a coordinator in the driver of a Spark pipeline.

The coordinator closes when the session ends, so the next coordinator gets the store at once.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from coordinator import Coordinator
from coordinator.config import Config, ConfigError
from coordinator.runtime.topic_catalog import TopicCatalog
from spark_jobs.jobs.spark_engine import SparkEngine
from spark_jobs.session.session import DELTA_CONF, check_in_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WATCH_S = 0.5
logger = logging.getLogger("muster.spark")


def embed(
    spark: SparkSession,
    store: str | Path,
    config: Config | None = None,
    *,
    topics: TopicCatalog | Mapping[str, int] | None = None,
    takeover: str = "wait",
    address: str = "",
) -> Coordinator:
    """Open a coordinator in this driver. It computes targets of very large groups on its Spark.

    >>> with embed(spark, "store", topics={"clicks": 6}) as coordinator:  # doctest: +SKIP
    ...     query = stream.writeStream.foreachBatch(with_what_it_owns(coordinator)).start()
    ...     query.awaitTermination()

    It closes with the `with` block, the session, or the driver's interpreter, whichever ends first.
    If the driver is killed, its lease expires and a waiting coordinator takes over the store.

    Parameters
    ----------
    spark
        The driver's session, with Delta (`spark_jobs.session.spark_session`, or
        conf/spark-defaults.conf under spark-submit).
    store, config, topics, takeover, address
        As for `Coordinator.open`.

    Raises
    ------
    ConfigError
        The session is a Spark Connect session, has been stopped, or cannot write Delta tables.
    BusyError, LogError
        As for `Coordinator.open`.
    """
    _check(spark)
    config = config or Config()
    engine = SparkEngine(spark, config)
    try:
        coordinator = Coordinator.open(
            store, config=config, topics=topics, engine=engine, takeover=takeover, address=address
        )
    except BaseException:
        engine.close()
        raise
    coordinator.when_closed(engine.close)
    _tie(coordinator, spark)
    return coordinator


def _check(spark: SparkSession) -> None:
    check_in_driver(spark)
    if not alive(spark):
        raise ConfigError("the Spark session has been stopped: start another before embedding")
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    if DELTA_CONF["spark.sql.extensions"] not in extensions:
        raise ConfigError(
            f"the Spark session has no Delta (spark.sql.extensions is {extensions!r}): build it "
            "with spark_jobs.session.spark_session(), or use conf/spark-defaults.conf"
        )
    mode = spark.sparkContext.getConf().get("spark.scheduler.mode", "FIFO") or "FIFO"
    if mode.upper() != "FAIR":
        logger.warning(
            "spark.scheduler.mode is %s: targets wait for the pipeline's jobs; with FAIR they run "
            "at the same time",
            mode,
        )


def alive(spark: SparkSession) -> bool:
    """Whether a session is running: neither Python nor its JVM has stopped it."""
    context = spark.sparkContext._jsc  # noqa: SLF001 - pyspark has no public word for it
    if context is None:
        return False
    try:
        return not context.sc().isStopped()
    except Exception:  # noqa: BLE001 - the JVM is gone
        return False


def _tie(coordinator: Coordinator, spark: SparkSession) -> None:
    """Close the coordinator when the session or the interpreter ends."""
    closed = threading.Event()

    def watch() -> None:
        while not closed.wait(WATCH_S):
            if not alive(spark):
                logger.warning("the Spark session has ended: closing the coordinator")
                coordinator.close()

    coordinator.when_closed(closed.set)
    coordinator.when_closed(lambda: atexit.unregister(coordinator.close))
    atexit.register(coordinator.close)
    threading.Thread(target=watch, name="muster-embedded", daemon=True).start()
