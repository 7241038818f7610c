"""Ask a store's coordinator about a plan, or act as its coordinator if none is running."""

from __future__ import annotations

import getpass
import os
import time
import uuid

from coordinator.config import Config
from coordinator.core.events import Action, DecidePlan
from coordinator.core.state.records import PlanMade
from coordinator.engines.plan_answers import ask_about_plan
from coordinator.storage.holders import watch_holder
from coordinator.storage.inbox import Inbox
from coordinator.storage.lease import Takeover
from coordinator.storage.tables.table_io import BusyError

LOOK_S = 0.1
PATIENCE_S = 60.0


def user_name() -> str:
    """Return who runs this command, as the audit names principals."""
    try:
        return f"User:{getpass.getuser()}"
    except (OSError, KeyError):
        return f"User:{os.getuid()}"


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

    If none is running, this process is the coordinator until the request is answered.

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
    find_holder = watch_holder(store, config.lease)

    def wait() -> None:
        if find_holder() is not None:
            time.sleep(LOOK_S)
        elif is_of_node:
            raise BusyError(
                f"no node is running on {store}, and no other process may decide about its groups: "
                "start it with `muster node`"
            )
        else:
            _serve_request(store, config, request_id)

    reading = LogReader(store)
    is_of_node = refuse_watched(reading)
    return ask_about_plan(store, request, reading.position, wait, PATIENCE_S)


def _serve_request(store: str, config: Config, request_id: str) -> None:
    """Be the coordinator until the request is answered, unless another one has the store."""
    from coordinator.runtime.coordinator import Coordinator  # noqa: PLC0415 - takes its time

    try:
        coordinator = Coordinator.open(store, config=config, takeover=Takeover.REFUSE)
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
