"""`muster setup`: jars that Spark needs, into this environment's Spark."""

from __future__ import annotations

from typing import Annotated

import typer

from coordinator.extras import require
from spark_jobs import jars, s3_jars


def setup(
    s3: Annotated[
        bool, typer.Option("--s3", help="Also Hadoop's file system for S3, s3a://: 10 MB.")
    ] = False,
    print_: Annotated[
        bool,
        typer.Option("--print", help="Only download, and print the paths for spark-submit --jars."),
    ] = False,
) -> None:
    """Install Delta's jars into this environment's Spark, and those for S3 with --s3.

    Example: `muster setup --s3`
    """
    require("muster setup", "spark")
    if print_:
        found = jars.delta_jars() + (s3_jars.s3_jars() if s3 else [])
        typer.echo(",".join(map(str, found)))
        return
    jars.install()
    if s3:
        s3_jars.install_s3()
