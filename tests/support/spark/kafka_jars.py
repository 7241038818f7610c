"""Spark's Kafka source, for tests: its jars come once from Maven Central, as Delta's do."""

from __future__ import annotations

import pyspark

from spark_jobs.jars import fetch_jars
from tests.conftest import ROOT

LOCK = ROOT / "tests/support/spark/kafka_jars.lock"


def kafka_source_jars():
    """Return the jars that a session needs for `format("kafka")`."""
    artifact = ("org.apache.spark", "spark-sql-kafka-0-10_2.13", pyspark.__version__)
    return fetch_jars(artifact, read_kafka_lock()[pyspark.__version__], "Spark's Kafka")


def read_kafka_lock():
    """Return {version of Spark: {file name: sha256}}."""
    found = {}
    for words in map(str.split, LOCK.read_text().splitlines()):
        if words[:1] == ["spark"]:
            digests = found.setdefault(words[1], {})
        elif words and words[0] != "#":
            digests[words[1]] = words[0]
    return found
