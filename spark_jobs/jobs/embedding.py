"""Embed a coordinator in the driver of a Spark pipeline.

The coordinator closes when the session ends, so the next coordinator gets the store at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from coordinator import Coordinator
from coordinator.config import Config, ConfigError
from coordinator.runtime.topic_catalog import TopicCatalog
from coordinator.shards.node import Node
from coordinator.storage.shards import read_shards, refuse_with_shards
from spark_jobs.jobs.spark_engine import SparkEngine
from spark_jobs.session.connect import is_connect
from spark_jobs.session.kinds import kind_of
from spark_jobs.session.session import DELTA_CONF

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
    If a session of Spark Connect or its server ends, targets are computed in a new session. If the
    driver is killed, its lease expires and a waiting coordinator takes over the store.

    Parameters
    ----------
    spark
        The driver's session, with Delta (`spark_jobs.session.spark_session`, or
        conf/spark-defaults.conf under spark-submit).
    store, config, topics, takeover, address
        As for `Coordinator.open`.

    Returns
    -------
    Coordinator
        Open: members may join. `with` closes it, and the session goes on.

    Raises
    ------
    ConfigError
        The session has been stopped, or cannot write Delta tables.
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


def embed_node(
    spark: SparkSession,
    store: str | Path,
    config: Config | None = None,
    *,
    topics: TopicCatalog | Mapping[str, int] | None = None,
) -> Node:
    """Be a node of a store of shards in this driver, beside drivers and servers of any number.

    >>> with embed_node(spark, "cluster", topics={"clicks": 6}) as node:  # doctest: +SKIP
    ...     member = Member(node.address, group_id="billing", topics=["clicks"])

    Each group is coordinated by the node that has its shard, so members are given its address, and
    not the node itself. It computes targets of very large groups of its shards on its Spark. It
    closes as `embed` says, and the other nodes take over its shards.

    Parameters
    ----------
    spark
        As for `embed`.
    store
        Of shards: `muster serve --shards` makes one.
    config
        `server.node_id` and `server.listen` are its own, for clients and the other nodes.
    topics
        As for `Coordinator.open`.

    Returns
    -------
    Node
        It serves clients at `node.address`, host:port, and claims its shards meanwhile. `with`
        closes it, and the session goes on.

    Raises
    ------
    ConfigError
        The store is not one of shards, the address cannot be used, or as for `embed`.
    OSError
        The address is taken.
    """
    _check(spark)
    config, shards = config or Config(), read_shards(store)
    if shards is None:
        raise ConfigError(f"{store} is not a store of shards: use embed, or muster serve --shards")
    refuse_with_shards(config, str(store))
    node = Node(str(store), shards, config, topics, lambda: SparkEngine(spark, config))
    try:
        node.serve()
    except BaseException:
        node.close()
        raise
    _tie(node, spark)
    return node


def _check(spark: SparkSession) -> None:
    if not kind_of(spark).alive():
        raise ConfigError("the Spark session has been stopped: start another before embedding")
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    if DELTA_CONF["spark.sql.extensions"] not in extensions:
        raise ConfigError(
            f"the Spark session has no Delta (spark.sql.extensions is {extensions!r}): build it "
            "with spark_jobs.session.spark_session(), or use conf/spark-defaults.conf"
        )
    if is_connect(spark):  # how its server schedules is the server's affair
        return
    mode = spark.sparkContext.getConf().get("spark.scheduler.mode", "FIFO") or "FIFO"
    if mode.upper() != "FAIR":
        logger.warning(
            "spark.scheduler.mode is %s: targets wait for the pipeline's jobs; with FAIR they run "
            "at the same time",
            mode,
        )


def _tie(coordinator: Coordinator | Node, spark: SparkSession) -> None:
    """Close the coordinator when the session ends."""
    closed, kind = threading.Event(), kind_of(spark)

    def watch() -> None:
        while not closed.wait(WATCH_S):
            if not kind.alive():
                logger.warning("the Spark session has ended: closing the coordinator")
                coordinator.close()

    coordinator.when_closed(closed.set)
    if is_connect(spark):
        return
    threading.Thread(target=watch, name="muster-embedded", daemon=True).start()
