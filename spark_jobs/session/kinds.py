"""Hide the difference between a session in the driver and one of Spark Connect."""

from __future__ import annotations

from typing import TypeAlias

from pyspark.sql import SparkSession

from spark_jobs.session.classic import ClassicSession
from spark_jobs.session.connect import ConnectSession, is_connect

SessionKind: TypeAlias = ClassicSession | ConnectSession
"""Both have the same methods; `spark_jobs` asks a session for nothing else that only one has."""


def kind_of(spark: SparkSession) -> SessionKind:
    """Return what `spark_jobs` may ask of a session."""
    return ConnectSession(spark) if is_connect(spark) else ClassicSession(spark)
