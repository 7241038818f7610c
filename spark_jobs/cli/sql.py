"""`muster sql`: a query on the views of a store."""

from __future__ import annotations

import sys
from itertools import chain, islice
from typing import Annotated

import typer

from coordinator.cli.inspect import say_watched
from coordinator.cli.options import AsOfOption, StoreOption
from coordinator.cli.render import ROWS_SHOWN, print_rows
from coordinator.cli.terminal import Terminal
from coordinator.display import progress
from coordinator.display.printable import as_json, visible_values
from coordinator.history.log_reader import open_logs
from coordinator.storage.shards import read_shards
from spark_jobs.session.interrupts import interruptible
from spark_jobs.session.session import active_tasks


def sql(
    query: Annotated[str, typer.Argument(help="SELECT … FROM groups, partition_owners, …")],
    store: StoreOption,
    as_of: AsOfOption = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON, one row per line.")] = False,
) -> None:
    """Query the views of a store in Spark SQL, all at one position.

    `SHOW VIEWS` lists them. Without Spark, `muster groups`, `history` and `explain` read the same.

    Example: `muster sql "SELECT * FROM partition_owners" --store store`
    """
    # The log is read first, to refuse bad input before a JVM starts, and to pin all views.
    logs = open_logs(store, as_of)
    position = logs[0].position if read_shards(store) is None else as_of
    say_watched(logs[0])
    from spark_jobs.sql.query import run_query  # noqa: PLC0415 - other commands never import pyspark

    with interruptible():
        with (
            progress.show("querying the store"),
            progress.task("tasks of Spark's stages", poll=active_tasks),
        ):
            columns, rows = run_query(store, position, query)
            first = list(islice(rows, ROWS_SHOWN + 1))
        if json_ or not sys.stdout.isatty():
            for row in chain(first, rows):
                sys.stdout.write(as_json(row) + "\n")
        else:
            print_rows(Terminal(), visible_values(first), columns)
