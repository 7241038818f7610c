"""The command `muster`. Its subcommands are the entry points `muster.commands`.

So this room imports neither Spark nor the commands of other rooms. Bad input prints one line to
stderr and exits with 2. If another process is at work, or an object store does not answer now, so
that nothing was done, it exits with 3: try again. Any other failure exits with 1.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from assignors import SpecError
from coordinator.config import Config, ConfigError, parse
from coordinator.display.printable import visible
from coordinator.errors.texts import gist
from coordinator.extras import explain
from coordinator.storage.record_log import CorruptLog, LogError, NewerLog, NoLog
from coordinator.storage.tables.files import StoreRefusedError
from coordinator.storage.tables.store_files import explain_silence
from coordinator.storage.tables.store_options import use_settings
from coordinator.storage.tables.table_io import BusyError

ENTRY_POINTS = "muster.commands"
SUBJECTS = {
    "Assign partitions": ("assign",),
    "Coordinate groups": ("serve", "nodes", "drain"),
    "Look at groups": ("groups", "describe", "history", "explain", "doctor", "web", "sql"),
    "Plan a target": ("plan", "apply", "approve", "reject", "rollback", "plans"),
    "Look after a store": ("verify", "compact", "backup", "restore", "reshard"),
    "Beside a Kafka cluster": ("watch", "gateway", "node"),
    "Set up and try": ("demo", "setup", "conf", "user", "trace"),
}
"""By what a user wants, the commands in the order of the list that `muster --help` prints."""
SUBJECT_OF = {name: subject for subject, names in SUBJECTS.items() for name in names}
BAD_INPUT, FAILURE, BUSY, INTERRUPTED = 2, 1, 3, 130
SURROGATES = re.compile("[\ud800-\udfff]")
"""What Python has for bytes of the command line that are not UTF-8."""

app = typer.Typer(
    name="muster",
    help="Assign partitions to group members: compute, coordinate, explain.",
    epilog="Settings are read from --config FILE, or from the file that MUSTER_CONFIG names. Exit "
    "codes: 0 done, 1 failed, 2 the input is invalid, 3 nothing was done, try again later.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class PlainHelp(TyperCommand):
    """A command whose help is shown as it is written.

    Rich would take `[web.listen]` for a style, and leave it out.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:  # noqa: ANN401 - click's
        super().__init__(*args, **settings)
        for one in (self, *self.params):
            if text := getattr(one, "help", None):
                one.help = re.sub(r"\[(?=[a-z#/@])", r"\[", text)  # type: ignore[attr-defined]


def _print_version(value: bool) -> None:  # noqa: FBT001 - typer's callback
    if value:
        typer.echo(f"muster {version('muster')}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Assign partitions to group members: compute, coordinate, explain."""
    if os.environ.get("MUSTER_CONFIG"):  # also for commands without --config: where stores are
        load_config(None)


def main() -> None:
    """Run the command line."""
    with _ended_by_interrupts():
        for point in _asked():
            subject = SUBJECT_OF.get(point.name)  # None: another package's, listed as "Commands"
            app.command(name=point.name, cls=PlainHelp, rich_help_panel=subject)(point.load())
    run_guarded(app)


@contextmanager
def _ended_by_interrupts() -> Iterator[None]:
    """Let Ctrl-C end the process at once: modules in C make errors of their own of it."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # as where a shell runs it in the background
        yield
        return
    signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _asked() -> list[EntryPoint]:
    """Return the command that is asked for; all, for a list of them, or where none is named."""
    order = {name: at for at, name in enumerate(SUBJECT_OF)}
    points = sorted(
        entry_points(group=ENTRY_POINTS),
        key=lambda point: (order.get(point.name, len(order)), point.name),
    )
    named = [point for point in points if sys.argv[1:2] == [point.name]]
    return named or points


def run_guarded(run: typer.Typer) -> None:
    """Run a command. Print an error as one line on stderr, and exit with its code.

    Libraries' warnings of what will change, as pyspark's of pandas 3, are for programs, not for
    who runs a command.
    """
    if not sys.warnoptions:
        warnings.simplefilter("ignore", FutureWarning)
    try:
        run()
    except (SpecError, ConfigError, CorruptLog, NewerLog, NoLog, StoreRefusedError) as error:
        exit_with_error(str(error), BAD_INPUT)
    except BrokenPipeError:  # the reader of a pipe closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(FAILURE) from None
    except BusyError as error:
        exit_with_error(str(error), BUSY)
    except (LogError, OSError) as error:
        if silence := explain_silence(error):
            exit_with_error(f"{silence}: try again later", BUSY)
        exit_with_error(str(error), FAILURE)
    except Exception as error:  # noqa: BLE001 - the outermost loop
        if isinstance(error, ImportError):
            found = explain(error, " ".join(["muster", *sys.argv[1:2]]))
            if found is not error:
                exit_with_error(str(found), BAD_INPUT)
        if isinstance(error, UnicodeEncodeError) and SURROGATES.search(error.object):
            exit_with_error(f"{error.object!r} is not UTF-8: give text in UTF-8", BAD_INPUT)
        if os.environ.get("MUSTER_DEBUG"):
            traceback.print_exc()
        exit_with_error(f"{gist(error)} (MUSTER_DEBUG=1 shows where)", FAILURE)


def exit_with_error(message: str, code: int) -> NoReturn:
    """Print one line on stderr and exit."""
    typer.echo(f"muster: {visible(message)}", err=True)
    raise SystemExit(code)


def load_config(path: Path | None) -> Config:
    """Read the settings file: the one given, else the one in MUSTER_CONFIG, else use the defaults.

    Object stores are reached by its section [store] from here on.

    Raises
    ------
    ConfigError
        The file cannot be read, or a setting is invalid.
    """
    named = path or os.environ.get("MUSTER_CONFIG")
    if not named:
        return Config()
    try:
        text = Path(named).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{named} cannot be read: {error}") from None
    config = parse(text, str(named))
    use_settings(config.store)
    return config
