"""Options and arguments that several commands have: each is declared here, once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

GroupArgument: TypeAlias = Annotated[str, typer.Argument(help="The group's id.")]
StoreOption: TypeAlias = Annotated[str, typer.Option(help="The folder of the store, or its URL.")]
StoreOrNone: TypeAlias = Annotated[
    str | None,
    typer.Option(help="The folder of the store, or its URL; without it, nothing is stored."),
]
AsOfOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="A position of the log, or a time such as 2026-03-01T12:00Z.", show_default="now"
    ),
]
JsonOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print JSON, one object per line.")
]
ConfigOption: TypeAlias = Annotated[
    Path | None, typer.Option(help="Settings, see conf/muster.toml.")
]
ReasonOption: TypeAlias = Annotated[
    str, typer.Option(help="Why; shown in the log and in the view plans.")
]
TakeoverOption: TypeAlias = Annotated[
    str, typer.Option(help="If another process has the store: wait, refuse or force.")
]
AdvertisedOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--advertised", "--advertise", help="host:port for clients, if not that of --listen."
    ),
]
HttpOption: TypeAlias = Annotated[
    str | None, typer.Option(help="host:port of /metrics, /healthz and /readyz.")
]
WebOption: TypeAlias = Annotated[
    str | None, typer.Option(help="host:port of web pages [web.listen].")
]
InsecureOption: TypeAlias = Annotated[
    bool,
    typer.Option("--insecure", help="Allow other addresses than loopback without TLS and login."),
]
LogLevelOption: TypeAlias = Annotated[
    str | None,
    typer.Option(help="The lowest level to log: debug, info, warning or error [server.log_level]."),
]
