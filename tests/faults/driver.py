"""What runs in a pipeline's driver: a Spark session, and a coordinator that uses it."""

from __future__ import annotations

import importlib
import logging
import os
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from coordinator import Coordinator
from coordinator.config import Config
from spark_jobs.session.session import SHORT_LIVED

from .node import LARGE, SMALL, Teller, answer_all, listen

SPARK = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    # Nothing here runs twice in one JVM: compiling would take most of the time.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
JVM = f"{SHORT_LIVED} -XX:+UseSerialGC"
NEVER_S = 600.0
STAGES = {
    "writing": ("coordinator.engines.write_target", "write_files", False),
    "written": ("coordinator.storage.target_table", "commit_target", False),
    "committed": ("spark_jobs.jobs.spark_engine", "compute_and_write", True),
}
"""Where a driver that assigns a group itself can stand still: before a function, or after it."""


def serve(pipe: Connection, store: str, config: Config, takeover: str) -> None:
    """Open a coordinator whose targets are computed on Spark, and answer until the pipe ends."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", JVM)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.setsid()  # so that it can be killed together with its JVM
    tell = Teller(pipe)
    listen(tell)
    logging.getLogger("muster.spark").setLevel(logging.INFO)  # it says what it is at
    from spark_jobs.jobs.spark_engine import SparkEngine
    from spark_jobs.session.session import spark_session

    spark = spark_session("muster-faults", "local[2]", SPARK)
    spark.sparkContext.setLogLevel("OFF")
    tell("began", time.monotonic())
    spark_engine = SparkEngine(spark, config)
    coordinator = Coordinator.open(
        store, config=config, topics=SMALL | LARGE, engine=spark_engine, takeover=takeover
    )
    coordinator.stop_session = spark.stop  # type: ignore[attr-defined] # what a parent may ask
    with coordinator:
        tell("serves", time.monotonic())
        answer_all(coordinator, pipe, tell)
        spark_engine.close()


def stop_before_record(pipe: Connection, store: str, config: Config, takeover: str) -> None:
    """The same, but it stands still between the job's commit and the record that installs it."""
    from spark_jobs.jobs import spark_engine

    def stand_still(*_: object) -> None:
        logging.getLogger("muster.spark").warning("committed, not installed")
        threading.Event().wait(NEVER_S)

    spark_engine.read_stored_target = stand_still  # type: ignore[assignment]
    serve(pipe, store, config, takeover)


def serve_here(stage: str, pipe: Connection, store: str, config: Config, takeover: str) -> None:
    """Open a coordinator that assigns groups in its driver, without a session.

    Parameters
    ----------
    stage
        Where it stands still until it is asked to go on; "" is nowhere.
    """
    tell = Teller(pipe)
    listen(tell)
    tell("began", time.monotonic())
    from spark_jobs.jobs.spark_engine import SparkEngine

    spark_engine = SparkEngine(None, config)
    go_on = _stand_still_at(stage) if stage else None
    coordinator = Coordinator.open(
        store, config=config, topics=SMALL | LARGE, engine=spark_engine, takeover=takeover
    )
    coordinator.go_on = go_on  # type: ignore[attr-defined] # what a parent may ask
    with coordinator:
        tell("serves", time.monotonic())
        answer_all(coordinator, pipe, tell)


def _stand_still_at(stage: str) -> Callable[[], None]:
    """Hold up the first call at a stage, and return what lets it go on."""
    module, name, after = STAGES[stage]
    place, goes_on = importlib.import_module(module), threading.Event()
    real = getattr(place, name)

    def stand_still() -> None:
        if not goes_on.is_set():
            logging.getLogger("muster.spark").warning("stands still: %s", stage)
            goes_on.wait(NEVER_S)

    def call(*words: object, **fields: object) -> object:
        if not after:
            stand_still()
        found = real(*words, **fields)
        if after:
            stand_still()
        logging.getLogger("muster.spark").warning("done: %s", stage)
        return found

    setattr(place, name, call)
    return goes_on.set
