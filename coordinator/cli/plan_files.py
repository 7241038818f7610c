"""Plans as files, and what is asked of a store's coordinator about them."""

from __future__ import annotations

import codecs
import getpass
import os
import time
import uuid
from pathlib import Path

import msgspec

from assignors import SpecError
from coordinator.clock import wall_ms
from coordinator.compute.plan_answers import ask_about_plan
from coordinator.config import Config
from coordinator.core.events import Action, DecidePlan
from coordinator.core.state.records import PlanMade
from coordinator.storage.inbox import Inbox
from coordinator.storage.lease import Lease
from coordinator.storage.tables.table_io import BusyError

LOOK_S = 0.1
PATIENCE_S = 60.0


def user_name() -> str:
    """Return who runs this command, as the audit names principals."""
    try:
        return f"User:{getpass.getuser()}"
    except (OSError, KeyError):
        return f"User:{os.getuid()}"


def write_plan(path: Path, plan: PlanMade) -> None:
    """Write a plan to a file, whole or not at all."""
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(plan)) + b"\n")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise SpecError(f"{path} cannot be written: {error.strerror}") from None


def read_plan(path: Path) -> PlanMade:
    """Read a plan from a file.

    Raises
    ------
    SpecError
        The file cannot be read, or is no plan; or it says what no plan says, and what somebody
        added for it to be heeded is not passed over.
    """
    try:
        given = msgspec.json.decode(path.read_bytes().removeprefix(codecs.BOM_UTF8))
        plan = msgspec.convert(given, PlanMade)
        more = _find_unknown(given, msgspec.to_builtins(plan))
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SpecError(f"{path} is not a plan: {error}; `muster plan -o` writes one") from None
    if more is not None:
        raise SpecError(
            f"{path} is not a plan: it has an unknown field {more!r}; `muster plan -o` writes one"
        )
    return plan


def _find_unknown(given: object, known: object) -> str | None:
    """Return a key of objects in objects that is not known; None where all are."""
    if isinstance(given, dict) and isinstance(known, dict):
        for key, value in given.items():
            found = key if key not in known else _find_unknown(value, known[key])
            if found is not None:
                return str(found)
    elif isinstance(given, list) and isinstance(known, list | tuple):
        pairs = zip(given, known, strict=False)
        return next((found for pair in pairs if (found := _find_unknown(*pair)) is not None), None)
    return None


def ask_coordinator(
    store: str,
    config: Config,
    action: Action,
    group_id: str,
    plan_id: str,
    plan: PlanMade | None = None,
    reason: str = "",
    request_id: str = "",
) -> int:
    """Ask a store's coordinator about a plan, and return the group epoch that it began, or 0.

    If there is no coordinator, this process is one until the request is answered.

    Raises
    ------
    SpecError
        It was refused; the message says why.
    BusyError
        No coordinator answered in time; the request is withdrawn.
    """
    from coordinator.history.log_reader import LogReader  # noqa: PLC0415 - takes its time
    from coordinator.history.watched import refuse_watched  # noqa: PLC0415

    request_id = request_id or uuid.uuid4().hex
    request = DecidePlan(action, group_id, plan_id, plan, user_name(), reason, request_id)
    lease = Lease(store, "", "", config.lease, wall_ms)

    def wait() -> None:
        if lease.holder() is None:
            _serve_request(store, config, request_id)
        else:
            time.sleep(LOOK_S)

    reading = LogReader(store)
    refuse_watched(reading)
    return ask_about_plan(store, request, reading.position, wait, PATIENCE_S)


def _serve_request(store: str, config: Config, request_id: str) -> None:
    """Be the coordinator until the request is answered, unless another one has the store."""
    from coordinator.runtime.coordinator import Coordinator  # noqa: PLC0415 - takes its time

    try:
        coordinator = Coordinator.open(store, config=config, takeover="refuse")
    except BusyError:
        return
    with coordinator:
        until = time.monotonic() + PATIENCE_S
        while (
            coordinator.status == "active"
            and request_id in Inbox(store).waiting()
            and time.monotonic() < until
        ):
            time.sleep(LOOK_S)
