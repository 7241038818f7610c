"""Hadoop's file system for S3, for Sparks that do not have it: fetched only for those who ask.

`hadoop-aws` depends on the whole SDK of Amazon's services in one jar of 640 MB. Of that it needs
the modules that `s3.lock` names, 10 MB, which are fetched instead.
"""

from __future__ import annotations

from pathlib import Path

from spark_jobs.jars import (
    HERE,
    JarsMissingError,
    copy_jars,
    fetch_modules,
    own_jars,
    spark_jars,
)

LOCK = HERE / "s3.lock"
Module = tuple[str, str, str]


def read_s3_lock() -> dict[str, dict[Module, str]]:
    """Return {version of Hadoop: {(organisation, module, version): sha256}}."""
    out: dict[str, dict[Module, str]] = {}
    for text in LOCK.read_text().splitlines():
        words = text.split()
        if not words or words[0] == "#":
            continue
        if words[0] == "hadoop":
            found = out.setdefault(words[1], {})
        else:
            digest, organisation, module, version = words
            found[organisation, module, version] = digest
    return out


def s3_jars(spark: Path | None = None) -> list[Path]:
    """Return the jars from the cache for a Spark's folder of jars; fetch them if they are missing.

    Raises
    ------
    JarsMissingError
        They cannot be downloaded, or this Spark's Hadoop is unknown to Muster.
    """
    spark = spark or spark_jars()
    found = sorted(spark.glob("hadoop-client-api-*.jar"))
    if not found:
        raise JarsMissingError(f"no Hadoop found in {spark}: add its S3 support with --packages")
    version, known = found[-1].stem.rpartition("-")[2], read_s3_lock()
    if version not in known:
        raise JarsMissingError(
            f"Spark in {spark} has Hadoop {version}, and Muster only knows the jars for "
            f"{' and '.join(known)}: submit with --packages "
            f"org.apache.hadoop:hadoop-aws:{version}"
        )
    return fetch_modules(f"hadoop-aws-{version}", known[version], "S3's")


def install_s3() -> list[Path]:
    """Copy the jars into this environment's Spark, so that every session has `s3a://`."""
    target = own_jars()
    jars = s3_jars(target)
    copy_jars(jars, target)
    return jars
