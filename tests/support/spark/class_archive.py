"""Spark's classes as an archive that the JVMs of tests map, instead of loading and checking them.

A JVM that starts Spark and writes a Delta table takes half of the CPU with it. An archive fits one
Java and one set of jars; a JVM with others, or with another class path, ignores it.
`python -m tests.support.spark.class_archive` makes it, once for a virtual environment: `make test` does.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from spark_jobs.jars import JarsMissingError, java_command, spark_jars
from spark_jobs.session.session import SHORT_LIVED, spark_session

QUICK = f"{SHORT_LIVED} -XX:+UseSerialGC"
"""For all JVMs that tests start: none lives long enough to repay an optimising compiler."""
CONF = {
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    # Hundreds of tiny queries, each run once: half of the time would go into compiling them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Spark writes down each query's plan, and again each time that it adapts it; `watch` lists them.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.ui.retainedExecutions": "100",
}
"""The settings of the session that tests share."""
STOP_S = 300


def archive() -> Path:
    """Return where the archive is, or would be, of this Java and these jars."""
    java = Path(java_command() or "java").resolve()
    parts = [java, *sorted(spark_jars().glob("*.jar"))]
    found = [f"{part}:{part.stat().st_mtime_ns}" for part in parts if part.exists()]
    digest = hashlib.sha256("\n".join(found).encode()).hexdigest()
    return Path(sys.prefix, f"spark-classes-{digest[:16]}.jsa")


def jvm_options() -> str:
    """Return the options of a JVM that tests start: with the archive, where there is one."""
    with suppress(JarsMissingError):
        if (file := archive()).exists():
            return f"{QUICK} -XX:SharedArchiveFile={file} -Xlog:cds*=off"
    return QUICK


def make() -> None:
    """Write the archive, unless it is there: what a JVM has loaded at its end."""
    file = archive()
    if file.exists() or java_command() is None:
        return
    sys.stdout.write("archiving Spark's classes for tests (once; half a minute) …\n")
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        fresh = Path(folder, file.name)
        log = "-Xlog:disable"  # a line for each class that no archive can have
        os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK} -XX:ArchiveClassesAtExit={fresh} {log}"
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        spark = spark_session("muster-classes", "local[2]", CONF)
        _use(spark, folder)
        gateway = spark.sparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(STOP_S)
        for old in file.parent.glob("spark-classes-*.jsa"):
            old.unlink()
        fresh.replace(file)


def _use(spark, folder):
    """Do what most tests of Spark do: read a store in SQL and by Python, assign, write, stream."""
    from spark_jobs.assignors.dispatch import assign_frames
    from spark_jobs.sql.views import register
    from tests.support.spark.groups import mixed, tables
    from tests.support.stories import all_stories, stored

    store = stored(all_stories(), Path(folder, "store"))
    register(spark, store, engine="spark")
    for view in ("epochs", "groups", "partition_owners"):
        spark.table(view).localCheckpoint().collect()
    spark.read.format("muster").options(view="members").load(str(store)).collect()
    frames = [
        spark.createDataFrame(one) if one else None for one in tables(mixed(range(4)), seed=1)
    ]
    for assignor, options in (("sticky", {"long_ranges": 0}), ("range", {})):
        assign_frames(spark, assignor, *frames, driver_rows=0, **options).rows.toArrow()
    table = f"delta.`{folder}/table`"
    spark.range(9).write.format("delta").save(f"{folder}/table")
    spark.sql(
        f"MERGE INTO {table} t USING (SELECT 3 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE"
    )
    feed = spark.readStream.format("delta").load(f"{folder}/table")
    options = {"checkpointLocation": f"{folder}/checkpoint"}
    writer = feed.writeStream.options(**options).trigger(availableNow=True)
    writer.foreachBatch(lambda batch, _: batch.count()).start().awaitTermination(STOP_S)


if __name__ == "__main__":
    make()
