"""`muster verify`: whether a store is sound, live or closed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coordinator.cli import FAILURE, stop
from coordinator.log import CorruptLog

if TYPE_CHECKING:
    from coordinator.verify.store import Progress


def verify(
    store: Annotated[Path, typer.Option(help="The folder that the coordinator was opened with.")],
) -> None:
    """Check a store: its log, snapshots and targets, owners and epochs.

    Reads everything, writes nothing, and does not disturb a live coordinator. Prints one line of
    JSON and ends with 0 when the store is sound; with 1, and the first damage on stderr, when it is
    not; with 2 when there is no store.
    """
    # What reads a store is imported where it is used: every other command would wait for it.
    from coordinator.verify import verify as verified  # noqa: PLC0415

    try:
        with _shown() as progress:
            found = verified(store, progress)
    except CorruptLog as error:
        stop(str(error), FAILURE)
    typer.echo(json.dumps({"sound": True, **asdict(found)}))


@contextmanager
def _shown() -> Iterator[Progress]:
    """Yield what shows progress on a terminal, and shows nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _done, _of: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("rows of the log", total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)
