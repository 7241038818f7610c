"""Kafka's requests about groups and offsets as methods, for callers in this process.

As with heartbeats (`heartbeat_requests`), nothing is decided here.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from coordinator.core.events import (
    Caller,
    ConfigureGroup,
    DeleteGroup,
    DescribeGroup,
    Event,
    InstallAssignment,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    PrepareAssignment,
)
from coordinator.core.group_admin import GroupDescription
from coordinator.core.large_requests import cut, join
from coordinator.core.state.groups import State
from coordinator.errors import GroupError
from coordinator.runtime import responses
from coordinator.runtime.plan_tasks.plan_requests import PROCESS, PlanRequests
from coordinator.runtime.responses import Answers, GroupAnswer

CALLER = Caller(PROCESS)
"""The caller that deletes or alters something in this process: the embedding program."""


class GroupRequests(PlanRequests):
    """The requests that a `Coordinator` answers; any thread may send them.

    A request that is refused raises a GroupError. A method that asks about several groups answers
    for each instead, with `error_code` and `error_message` (0 and None when it was served);
    `raise_for_error()` of one answer, or of all, raises what was refused.
    """

    # Groups --------------------------------------------------------------------------------------

    def consumer_group_describe(self, group_ids: Sequence[str] | str) -> Answers[GroupAnswer]:
        """Describe groups: their epochs, members and assignments (ConsumerGroupDescribe).

        Parameters
        ----------
        group_ids
            One group, or several.

        Returns
        -------
        Answers of GroupAnswer
            One per group, in order, with Kafka's fields in snake case.
        """
        return self._ask_of_each(group_ids, DescribeGroup, GroupDescription.fields)

    def group_epochs(self, group_ids: Sequence[str] | str) -> list[tuple[int, int]]:
        """Return the epochs of groups; cheap enough to poll.

        Parameters
        ----------
        group_ids
            One group, or several.

        Returns
        -------
        list of (int, int)
            The group epoch and the assignment epoch of each, in order; (0, 0) for a group that
            does not exist.

        Raises
        ------
        GroupError
            The coordinator does not serve: it is loading, fenced or closed.
        """

        def look(state: State) -> list[tuple[int, int]]:
            groups = [state.groups.get(name) for name in responses.as_list(group_ids)]
            return [(g.epoch, g.assignment_epoch) if g else (0, 0) for g in groups]

        return self._read(look)

    def list_groups(
        self, states_filter: Iterable[str] = (), types_filter: Iterable[str] = ()
    ) -> GroupAnswer:
        """List groups (ListGroups).

        Parameters
        ----------
        states_filter, types_filter
            Names of states ("Stable") and types ("consumer") to list, in any case; an empty filter
            takes all.

        Returns
        -------
        GroupAnswer
            `groups` has one dict per group: `group_id`, `protocol_type`, `group_state`,
            `group_type`.
        """
        event = ListGroups(frozenset(states_filter), frozenset(types_filter))
        return GroupAnswer(groups=self._ask(event))

    def delete_groups(self, group_ids: Sequence[str] | str) -> Answers[GroupAnswer]:
        """Delete groups that have no members (DeleteGroups).

        Parameters
        ----------
        group_ids
            One group, or several.

        Returns
        -------
        Answers of GroupAnswer
            One per group, in order: `group_id` and the error.
        """
        return self._ask_of_each(
            group_ids, lambda group_id: DeleteGroup(group_id, CALLER), lambda _: {}
        )

    def alter_group_config(self, group_id: str, settings: Mapping[str, object]) -> None:
        """Set all settings of a group, before or after it exists.

        Parameters
        ----------
        group_id
            The group.
        settings
            Values by name, as in "consumer.session.timeout.ms"; those left out go back to their
            defaults.

        Raises
        ------
        GroupError
            A setting is unknown, or its value is out of bounds.
        """
        if isinstance(settings, Mapping):  # else it is refused by its type
            settings = {name: str(value) for name, value in settings.items()}
        self._ask(ConfigureGroup(group_id, settings, CALLER))  # type: ignore[arg-type]

    def describe_group_config(self, group_id: str) -> dict[str, str]:
        """Return the settings of a group that are not the defaults.

        Parameters
        ----------
        group_id
            The group; it need not exist.

        Returns
        -------
        dict
            Values by name.

        Raises
        ------
        GroupError
            The coordinator does not serve: it is loading, fenced or closed.
        """
        return self._read(lambda state: dict(state.settings.get(group_id, {})))

    # Offsets -------------------------------------------------------------------------------------

    def offset_commit(
        self,
        *,
        group_id: str,
        topics: Mapping[str, Mapping[int, int | tuple[int, str]]],
        member_id: str = "",
        member_epoch: int = -1,
    ) -> None:
        """Commit offsets (OffsetCommit); when it returns, they are durable.

        More than 2,000 are committed in pieces: if the coordinator ends in between, only some are
        committed.

        Parameters
        ----------
        group_id
            The group.
        topics
            {topic: {partition: offset, or (offset, metadata)}}.
        member_id, member_epoch
            Of the member that commits; "" and −1 commit for a group without members.

        Raises
        ------
        Fenced
            The member or its epoch is outdated: nothing is committed.
        PartitionsRefusedError
            Offsets of some partitions are not committed; those of the others are.
        GroupError
            The request was refused; nothing is committed.
        """
        event = OffsetCommit(group_id, member_id, member_epoch, responses.read_offsets(topics))
        pieces = cut(event)
        answer = join(pieces, self._loop.submit([*pieces]).result())
        if isinstance(answer, GroupError):
            raise GroupError(answer.code, answer.message)  # of this caller: others may have it too
        codes: Any = answer.response
        responses.refuse_partitions(codes)

    def offset_fetch(
        self,
        *,
        group_id: str,
        topics: Mapping[str, Sequence[int]] | None = None,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> GroupAnswer:
        """Return committed offsets (OffsetFetch).

        Parameters
        ----------
        group_id
            The group.
        topics
            Partitions by topic; None fetches all that are committed.
        member_id, member_epoch
            Of the member that asks; None and −1 ask for no member.

        Returns
        -------
        GroupAnswer
            `topics` has, by topic and partition, `committed_offset` (−1 without one) and
            `metadata`.

        Raises
        ------
        Fenced
            The member or its epoch is outdated.
        GroupError
            The request was refused otherwise.
        """
        found = self._ask(OffsetFetch(group_id, topics, member_id, member_epoch))
        return GroupAnswer(responses.fetch_response(found))

    def offset_delete(self, *, group_id: str, topics: Mapping[str, Sequence[int]]) -> None:
        """Delete offsets of topics that the group does not subscribe to (OffsetDelete).

        Parameters
        ----------
        group_id
            The group.
        topics
            Partitions by topic.

        Raises
        ------
        PartitionsRefusedError
            Offsets of some partitions are not deleted: the group subscribes to their topic.
        GroupError
            The request was refused; nothing is deleted.
        """
        responses.refuse_partitions(self._ask(OffsetDelete(group_id, topics, CALLER)))

    # Targets that are computed elsewhere ---------------------------------------------------------

    def consumer_group_prepare_assignment(self, group_id: str) -> GroupAnswer:
        """Begin to compute a group's target outside the coordinator.

        Parameters
        ----------
        group_id
            The group.

        Returns
        -------
        GroupAnswer
            `computation_id` and `group_epoch`, which you pass back with the target; the present
            `assignment_epoch`; and Arrow tables of the group: `members`, `topics`, `owned`.

        Raises
        ------
        GroupError
            The group does not exist, or has no members.
        """
        return GroupAnswer(self._ask(PrepareAssignment(group_id, str(uuid.uuid4()))))

    def consumer_group_install_assignment(
        self,
        *,
        group_id: str,
        computation_id: str,
        group_epoch: int,
        ranges: pa.Table,
        assignor: str = "external",
        partial: bool = False,
    ) -> GroupAnswer:
        """Install a target that was computed outside the coordinator.

        Parameters
        ----------
        group_id
            The group.
        computation_id, group_epoch
            As consumer_group_prepare_assignment returned them.
        ranges
            One row per range of partitions: `member_id`, `topic`, `first_partition`,
            `partition_count`.
        assignor
            What computed it; shown in the group's history.
        partial
            Whether it only goes part of the way; the group then asks for the rest.

        Returns
        -------
        GroupAnswer
            `group_epoch`, `assignment_epoch`, `moved` (partitions), `members_changed`.

        Raises
        ------
        GroupError
            The ranges do not fit the group (INVALID_ASSIGNMENT), or the group has moved on: prepare
            again.
        """
        event = InstallAssignment(group_id, computation_id, group_epoch, ranges, assignor, partial)
        return GroupAnswer(self._ask(event))

    def _ask_of_each(
        self,
        group_ids: Sequence[str] | str,
        event: Callable[[str], Event],
        shape: Callable[[Any], dict[str, object]],
    ) -> Answers[GroupAnswer]:
        """Return what is answered about each group: all of them are one batch."""
        names = responses.as_list(group_ids)
        found = self._loop.submit([event(name) for name in names]).result()
        return Answers(
            responses.group_answer(name, answer, shape)
            for name, answer in zip(names, found, strict=True)
        )
