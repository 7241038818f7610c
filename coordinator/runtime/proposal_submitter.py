"""Targets that external jobs propose: read from the inbox, decided by the event loop."""

from __future__ import annotations

import logging

from coordinator.compute import proposal_inbox
from coordinator.core.records import ACCEPTED
from coordinator.error_text import one_line
from coordinator.errors import ErrorCode, GroupError
from coordinator.runtime.event_loop import EventLoop
from coordinator.runtime.refusal_counts import RefusalCounts
from coordinator.status import Status
from coordinator.storage.record_log import LogError

logger = logging.getLogger("muster.coordinator")


class ProposalSubmitter:
    """Submits the proposals of one store to its event loop; one thread runs it.

    A proposal stays in the inbox until its verdict is durable; until then it is submitted again.

    Parameters
    ----------
    loop
        What decides; its coordinator has a store.
    """

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._refusals = RefusalCounts(loop.processor)

    def run(self) -> None:
        """Submit the proposals that wait; one that fails holds up none of those after it."""
        store = self._loop.processor.log.store
        assert store is not None
        proposal_inbox.set_unknown_aside(store)
        for run_id in proposal_inbox.list_proposals(store):
            if self._loop.processor.status is not Status.ACTIVE:
                return
            try:
                self._submit(store, run_id)
            except FileNotFoundError:
                continue  # its job does not wait any more
            except (OSError, LogError) as error:
                logger.warning("deferring the decision on proposal %s: %s", run_id, error)
            except Exception as error:
                logger.exception("proposal %s cannot be decided", run_id)
                proposal_inbox.set_proposal_aside(store, run_id, one_line(error))

    def _submit(self, store: str, run_id: str) -> None:
        event = proposal_inbox.validate_proposal(store, run_id)
        (answer,) = self._loop.submit([event]).result()
        if isinstance(answer, GroupError):
            if self._refusals.add(run_id):
                why = f"{answer.code.name}: {answer.message}"
                proposal_inbox.set_proposal_aside(store, run_id, why)
            return
        self._refusals.forget(run_id)
        logger.info("proposal %s of group %s: %s", run_id, event.group_id, answer.response)
        if answer.response == ACCEPTED:
            self._loop.target_jobs.supersede(event.group_id)
        if event.refusal is not None and event.refusal.code is ErrorCode.INVALID_REQUEST:
            proposal_inbox.set_proposal_aside(store, run_id, event.refusal.message)
        else:
            proposal_inbox.remove_proposal(store, run_id)
