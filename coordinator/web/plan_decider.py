"""Approves and rejects plans for those who look at pages: asks the coordinator of the store.

The pages stay readers of the store. What they ask is a file beside the log, as with `muster
approve`, so it makes no difference whether the coordinator is in this process.
"""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import Future, ThreadPoolExecutor

from coordinator.config import LeaseConfig
from coordinator.core.events import Action, DecidePlan
from coordinator.core.state.records import PlanMade
from coordinator.engines.plan_answers import ask_about_plan
from coordinator.history.log_reader import LogReader
from coordinator.history.watched import refuse_watched
from coordinator.storage.holders import FindHolder, watch_holder
from coordinator.storage.shards import store_of
from coordinator.storage.tables.table_io import BusyError

LOOK_S = 0.2
PATIENCE_S = 20.0
AT_ONCE = 2
"""Decisions that wait for the coordinator at once; more wait for them."""


class PlanDecider:
    """Asks a store's coordinator about plans.

    Parameters
    ----------
    store
        The folder of the store, or its URL.
    lease
        The settings of the lease, which says whether there is a coordinator.
    """

    def __init__(self, store: str, lease: LeaseConfig) -> None:
        self._store = store
        self._lease = lease
        self._closed = threading.Event()
        self._threads = ThreadPoolExecutor(AT_ONCE, "muster-web-decide")

    def decide(
        self,
        action: Action,
        group_id: str,
        plan_id: str,
        after: int,
        by: str,
        reason: str,
        plan: PlanMade | None = None,
    ) -> Future[int]:
        """Ask, and return the group epoch that begins, or 0, once the coordinator has answered.

        Parameters
        ----------
        after
            A position of the log before now.
        by, reason
            Who decides, and why.
        plan
            The plan itself, to apply or propose it.

        Raises
        ------
        SpecError
            The coordinator refused; the message says why.
        BusyError
            No coordinator is there, or it did not answer: nothing was decided.
        """
        request = DecidePlan(action, group_id, plan_id, plan, by, reason, uuid.uuid4().hex)

        def ask() -> int:
            store = store_of(self._store, group_id)
            find_holder = watch_holder(store, self._lease)
            refuse_watched(LogReader(store))
            _refuse_alone(store, find_holder)
            return ask_about_plan(
                store, request, after, lambda: self._wait(store, find_holder), PATIENCE_S
            )

        return self._threads.submit(ask)

    def close(self) -> None:
        """Withdraw what was not answered."""
        self._closed.set()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _wait(self, store: str, find_holder: FindHolder) -> None:
        if self._closed.wait(LOOK_S):
            raise BusyError("the pages are closed: try again")
        _refuse_alone(store, find_holder)


def _refuse_alone(store: str, find_holder: FindHolder) -> None:
    if find_holder() is None:
        raise BusyError(
            f"no coordinator is running on {store}, so the plan cannot be decided: "
            "start one, or use `muster approve` or `muster reject`"
        )
