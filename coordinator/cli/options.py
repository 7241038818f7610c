"""Options and arguments that several commands have: each is declared here, once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar, get_args

import typer

from coordinator.cli.main import BAD_INPUT, exit_with_error
from coordinator.config.settings import LogLevel
from coordinator.storage.lease import Takeover

T = TypeVar("T", bound=str)


def one_of(name: str, choices: Iterable[T]) -> Callable[[str], T]:
    """Return what reads an option of a few values, and refuses any other in one line.

    Parameters
    ----------
    name
        Of the option, as users write it.
    choices
        The values: an enum's members, or texts.
    """
    known = {str(one): one for one in choices}

    def read(given: str) -> T:
        if given not in known:
            exit_with_error(f"{name} is {given!r}: give one of {', '.join(known)}", BAD_INPUT)
        return known[given]

    return read


def choice(name: str, choices: Iterable[str], text: str) -> Any:  # noqa: ANN401 - as typer.Option
    """Declare an option of a few values: its help lists them, and any other is refused."""
    known = list(choices)
    return typer.Option(name, help=text, parser=one_of(name, known), metavar="|".join(known))


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
    Takeover,
    choice(
        "--takeover",
        Takeover,
        "If another process has the store: wait for it, refuse to start, or force it out.",
    ),
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
    LogLevel | None,
    choice("--log-level", get_args(LogLevel), "The lowest level to log [server.log_level]."),
]
