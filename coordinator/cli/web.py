"""`muster web` serves the pages of a store: of one that is in use, or of one that no longer is."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from typing import Annotated

import typer

from coordinator.cli.main import load_config
from coordinator.cli.options import ConfigOption, InsecureOption, StoreOption
from coordinator.cli.terminal import log_to_stderr
from coordinator.display import progress
from coordinator.display.printable import visible
from coordinator.extras import require

LISTEN = "127.0.0.1:8080"
TURN_S = 0.5


def web(
    store: StoreOption,
    listen: Annotated[str | None, typer.Option(help=f"host:port of the pages [{LISTEN}].")] = None,
    insecure: InsecureOption = False,
    config: ConfigOption = None,
) -> None:
    """Show the groups of a store in a browser, with their history and reasons, until Ctrl-C.

    Example: `muster web --store store`
    """
    require("muster web", "web")
    from coordinator.web.server import WebServer  # noqa: PLC0415 - an extra

    settings = load_config(config)
    server = replace(settings.server, insecure=insecure or settings.server.insecure)
    settings = replace(settings, server=server)
    log_to_stderr(settings.server.log_level, settings.server.log_format)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with progress.show("reading the store"):
        pages = WebServer(store, settings, listen or settings.web.listen or LISTEN)
    with pages:
        typer.echo(f"muster shows {visible(str(store))} at {pages.url} (Ctrl-C ends)")
        while not stop.wait(TURN_S):
            pass
