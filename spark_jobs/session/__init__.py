"""Spark sessions with Delta, separate sessions for jobs, and the schemas of frames.

>>> from spark_jobs.session import spark_session
>>> spark = spark_session("local[2]")  # doctest: +SKIP
"""

from __future__ import annotations

from spark_jobs.session.session import spark_session

__all__ = ["spark_session"]
