"""Spark's Kafka source, for tests: its jars come once from Maven Central, as Delta's do."""

from __future__ import annotations

import pyspark

from spark_jobs.jars import fetch_jars
from tests.conftest import ROOT

LOCK = ROOT / "tests/support/spark/kafka_jars.lock"


def kafka_source_jars():
    """Return the jars that a session needs for `format("kafka")`."""
    lines = LOCK.read_text().splitlines()
    digests = {name: digest for digest, name in map(str.split, lines)}
    artifact = ("org.apache.spark", "spark-sql-kafka-0-10_2.13", pyspark.__version__)
    return fetch_jars(artifact, digests, "Spark's Kafka")
