"""`muster trace`: read operations and print answers, as JSON lines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, TextIO

import typer

from assignors import SpecError
from coordinator.cli.main import load_config
from coordinator.cli.options import ConfigOption
from coordinator.config import Config
from coordinator.display import progress
from coordinator.display.printable import as_json
from coordinator.storage.delta_log import DeltaLog
from coordinator.storage.record_log import RecordLog
from coordinator.storage.tables.store_root import find_root
from coordinator.trace.fields import TraceError
from coordinator.trace.json_trace import JsonTrace, run_lines


def trace(
    operations: Annotated[
        str | None, typer.Argument(help="A file of JSON lines; - for standard input.")
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(help="Write the log to a new store in this folder instead of memory."),
    ] = None,
    records: Annotated[
        bool, typer.Option("--records", help="Also print the records written.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Run operations against a coordinator on a virtual clock, and print Kafka's answers.

    Example: `muster trace operations.jsonl --records`
    """
    settings = load_config(config)
    playing = JsonTrace(_make_log_opener(log), records=records, config=settings)
    try:
        with _open_operations(operations) as source, _show_progress() as answers:
            for answer in run_lines(source, playing):
                sys.stdout.write(as_json(answer) + "\n")
                sys.stdout.flush()
                answers.advance()
    except UnicodeDecodeError as error:
        raise SpecError(f"{operations or 'standard input'} is not UTF-8: {error}") from None
    except TraceError as error:
        raise SpecError(str(error)) from None
    finally:
        playing.close()


def _show_progress() -> AbstractContextManager[progress.ProgressLine]:
    """Show the number of answered operations, unless the answers go to the terminal."""
    label = "answering operations"
    return progress.task(label) if sys.stdout.isatty() else progress.show(label)


def _open_operations(operations: str | None) -> TextIO:
    if operations in {None, "-"}:
        return sys.stdin
    try:
        return Path(str(operations)).open(encoding="utf-8-sig")
    except OSError as error:
        raise SpecError(f"{operations} cannot be read: {error.strerror}") from None


def _make_log_opener(root: Path | None) -> Callable[[Config, bool], RecordLog] | None:
    """Return a function that opens the log. Each `config` creates a new store; none is deleted."""
    if root is None:
        return None
    begun: list[Path] = []

    def open_log(config: Config, fresh: bool) -> RecordLog:  # noqa: FBT001 - a callback
        if fresh:
            store = root if not begun else root.with_name(f"{root.name}-{len(begun) + 1}")
            find_root(store)  # it can be a store
            if store.exists() and any(store.iterdir()):
                raise SpecError(
                    f"{store} is not empty: a trace needs a new store, name another folder"
                )
            begun.append(store)
        return DeltaLog.open(begun[-1], config.log)

    return open_log
