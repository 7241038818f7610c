"""Object stores as Spark reaches them: through Hadoop's file systems, by their URLs and settings.

A store is named by `s3://` here, which Hadoop calls `s3a://`. The endpoint and the region come from
[store] or the environment, as the coordinator's; keys Spark takes from there itself.
"""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from coordinator.config import ConfigError
from coordinator.storage.tables.store_files import is_remote, root_of
from coordinator.storage.tables.store_options import used_settings
from coordinator.storage.tables.urls import is_url
from spark_jobs.session.connect import is_connect

PACKAGES = (
    dict.fromkeys(("s3", "s3a"), "aws")
    | dict.fromkeys(("abfs", "abfss", "wasb", "wasbs", "az"), "azure")
    | {"gs": "gcp"}
)
"""Hadoop's packages for file systems, by URL scheme."""
_HADOOP = "org.apache.hadoop:hadoop-{}:{}"
_PATTERN = re.compile(r"[\\*?\[\]{}]")


def spark_path(path: str) -> str:
    """Return a path, or the URL of a store or of a file in it, as Spark reads and writes it.

    A path becomes a `file://` URL: on clusters, Spark takes a plain one for a path in HDFS.

    Raises
    ------
    ConfigError
        The account of an Azure container is not known.
    """
    if not is_remote(path):
        return path if is_url(path) else f"file://{os.path.abspath(path)}"
    scheme, _, rest = path.partition("://")
    if scheme == "s3":
        return f"s3a://{rest}"
    if scheme != "az":
        return path
    container, _, inside = rest.partition("/")
    account = os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    if not account:
        raise ConfigError(
            f"{path} names no account, which Spark needs: set AZURE_STORAGE_ACCOUNT_NAME, or name "
            f"it abfss://{container}@ACCOUNT.dfs.core.windows.net/{inside}"
        )
    return f"abfss://{container}@{account}.dfs.core.windows.net/{inside}"


def spark_pattern(path: str) -> str:
    """Return the pattern that names this path alone, for Spark's readers of files.

    They take what they are given for a pattern: `m[1].parquet` would be `m1.parquet`.
    """
    return _PATTERN.sub(r"\\\g<0>", spark_path(path))


def s3_settings() -> dict[str, str]:
    """Return Hadoop's settings for the S3 of [store], else of the environment; without keys."""
    found, used = {}, used_settings()
    region = used.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region:
        found["fs.s3a.endpoint.region"] = region
    if endpoint := used.endpoint or os.environ.get("AWS_ENDPOINT_URL"):
        secure = str(urlsplit(endpoint).scheme != "http").lower()
        found |= {
            "fs.s3a.endpoint": endpoint,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": secure,
        }
    if used.addressing != "auto":
        found["fs.s3a.path.style.access"] = str(used.addressing == "path").lower()
    return found


def reach_store(spark: SparkSession, store: str | os.PathLike[str]) -> None:
    """Have a session reach a store; what its user has set stays as it is.

    Raises
    ------
    ConfigError
        This Spark has no file system for it.
    """
    root = root_of(store)
    if not is_remote(root) or is_connect(spark):  # a server has settings of its own
        return
    url = spark_path(root)
    scheme = urlsplit(url).scheme
    jvm: Any = spark._jvm  # noqa: SLF001 - the one way to Hadoop's file systems
    hadoop = spark._jsc.hadoopConfiguration()  # noqa: SLF001
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, hadoop)
    except Py4JError:
        raise ConfigError(f"{root} cannot be read: {add_file_system(spark, scheme)}") from None
    if scheme != "s3a":
        return
    for name, value in s3_settings().items():
        if hadoop.get(name) in {None, "", _default(jvm, name)}:
            spark.conf.set(name, value)


def _default(jvm: Any, name: str) -> str | None:  # noqa: ANN401 - py4j's
    """Return what Hadoop's own defaults say."""
    value: str | None = jvm.org.apache.hadoop.conf.Configuration(True).get(name)
    return value


def write_plain(frame: DataFrame, url: str) -> None:
    """Write rows as Parquet files below a URL, where nothing is; a commit of ours names them.

    Hadoop's committer renames what finished tasks wrote, so a task that is tried twice, or a
    worker that was given up, leaves nothing among them.
    """
    marks = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
    frame.write.option(marks, "false").mode("error").parquet(spark_path(url))


def add_file_system(spark: SparkSession, scheme: str) -> str:
    """Return what is missing for a URL, and how it is added."""
    package = PACKAGES.get(scheme)
    if package is None or is_connect(spark):
        return f"this Spark has no file system for {scheme}:// URLs"
    jvm: Any = spark._jvm  # noqa: SLF001 - the one way to Hadoop's version
    added = _HADOOP.format(package, jvm.org.apache.hadoop.util.VersionInfo.getVersion())
    also = ", and name it s3a://" if scheme == "s3" else ""
    here = "run `muster setup --s3`, or " if scheme in {"s3", "s3a"} else ""
    return (
        f"this Spark has no file system for {scheme}:// URLs: {here}submit with --packages "
        f"{added}{also}"
    )
