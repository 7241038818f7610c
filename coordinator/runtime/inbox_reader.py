"""Does what other processes ask of the coordinator: one reader of one folder."""

from __future__ import annotations

import logging

from coordinator.core.events import DecidePlan
from coordinator.errors import GroupError
from coordinator.errors.status import Status
from coordinator.errors.texts import one_line
from coordinator.runtime.event_loop import EventLoop
from coordinator.runtime.log_maintenance import LogMaintenance
from coordinator.storage.inbox import FOLDER, PROPOSALS, Compact, Inbox, RequestError, old_inboxes
from coordinator.storage.record_log import LogError

TRIES = 3
"""How often in a row a request is refused before the log has an answer, until it is set aside."""
NOT_PROPOSED = "jobs no longer propose targets: run `muster assign` of this version"
logger = logging.getLogger("muster.coordinator")


class InboxReader:
    """Reads the requests of one store; one thread runs it.

    A request stays in the inbox until its answer is durable; until then it is done again.

    Parameters
    ----------
    loop
        What decides about plans.
    maintenance
        What packs the log.
    """

    def __init__(self, loop: EventLoop, maintenance: LogMaintenance) -> None:
        self._loop = loop
        self._maintenance = maintenance
        self._refused: dict[str, int] = {}
        store = loop.processor.log.store
        self._inboxes = [] if store is None else [*old_inboxes(store), Inbox(store)]
        """The inbox, and folders of older versions until they are empty."""

    def run(self) -> None:
        """Do what waits; a request that fails holds up none of those after it."""
        if self._loop.processor.status is not Status.ACTIVE:
            return
        for inbox in list(self._inboxes):
            self._read(inbox)
            if inbox.folder != FOLDER and not inbox.waiting():
                self._inboxes.remove(inbox)

    def _read(self, inbox: Inbox) -> None:
        inbox.set_strangers_aside()
        for request_id in inbox.waiting():
            if self._loop.processor.status is not Status.ACTIVE:
                return
            try:
                request = inbox.read(request_id)
                if isinstance(request, Compact):
                    self._maintenance.ask_to_compact(inbox, request_id)
                else:
                    self._decide(inbox, request)
            except FileNotFoundError:
                continue  # the caller no longer waits
            except RequestError as error:
                inbox.set_aside(request_id, str(error))
            except (OSError, LogError) as error:
                logger.warning("deferring the answer to request %s: %s", request_id, error)
            except Exception as error:
                logger.exception("request %s cannot be answered", request_id)
                inbox.set_aside(request_id, one_line(error))

    def _decide(self, inbox: Inbox, request: DecidePlan) -> None:
        request_id = request.request_id
        try:
            answer = self._loop.decide_plan(request)
        except GroupError as error:
            raise LogError(error.message) from None
        if isinstance(answer, GroupError):  # not even the refusal was written
            if self._is_last_try(request_id):
                inbox.set_aside(request_id, f"{answer.code.name}: {answer.message}")
            return
        self._refused.pop(request_id, None)
        if inbox.folder == PROPOSALS:
            inbox.set_aside(request_id, NOT_PROPOSED)
            return
        logger.info("plan %s of group %s: %s", request.plan_id, request.group_id, answer.response)
        inbox.remove(request_id)

    def _is_last_try(self, request_id: str) -> bool:
        """Count a refusal; those of a coordinator that does not serve do not count."""
        if self._loop.processor.status is not Status.ACTIVE:
            return False
        count = self._refused.pop(request_id, 0) + 1
        if count < TRIES:
            self._refused[request_id] = count
        return count == TRIES
