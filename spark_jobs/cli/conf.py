"""`muster conf`: paths of the files that come with Muster."""

from __future__ import annotations

from typing import Annotated

import typer

from assignors import SpecError
from coordinator.display.printable import as_json
from spark_jobs.session.package_files import CONF, PACKAGE, conf_file

JOB = "assign.py"
"""What spark-submit starts."""


def conf(
    name: Annotated[
        str | None, typer.Argument(help="muster.toml, spark-defaults.conf, assign.py, …")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON, one file per line.")] = False,
) -> None:
    """Print the path of a file that comes with Muster: default settings, or the job to submit.

    Example: `muster conf muster.toml`
    """
    paths = {one: conf_file(one) for one in CONF} | {JOB: PACKAGE / JOB}
    if name is not None and name not in paths:
        raise SpecError(f"{name!r} does not come with Muster: give one of {', '.join(paths)}")
    for one in paths if name is None else [name]:
        path = str(paths[one])
        typer.echo(as_json({"name": one, "path": path}) if json_ else path)
