"""Targets that this process computes, and writes to the table `targets` as a Spark job does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors import PartitionRanges
from assignors.arrays import Longs, count_by, expand_runs, offsets_of
from assignors.quality import count_moved
from coordinator.config import Config
from coordinator.core.state.span_columns import TopicKeys
from coordinator.core.state.target_assignment import StoredTarget, WholeTarget
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.core.targets.basis import Basis
from coordinator.core.targets.compute_here import assign_checked
from coordinator.storage.target_digest import digest_rows
from coordinator.storage.target_table import add_target, write_files


def compute_and_write(
    basis: Basis, config: Config, say: Callable[[str, int], None]
) -> TargetCandidate:
    """Compute a target here, check it and write it; its rows need not be read.

    Parameters
    ----------
    basis
        Must name a store. A repeated computation with the same id writes nothing.
    say
        Called with each stage that begins, and its number of rows.

    Raises
    ------
    SpecError
        The assignor refuses the group.
    GroupError
        INVALID_ASSIGNMENT: what it returned is not a valid assignment of the group.
    BusyError
        Other writers of the table were faster at every attempt.
    """
    assert basis.store is not None
    say("assigning", basis.input.targets.rows())
    spec = basis.input.spec(basis.options.assignor)
    ranges = assign_checked(spec, basis.options)
    moved = int(count_moved(spec, ranges).sum())
    whole = make_whole(ranges, basis.input.listed.keys)
    say("writing", len(whole))
    rows = list_rows(whole)
    facts = digest_rows(rows), spec.member_count, len(rows)
    write = partial(write_files, basis.store, rows, basis.computation_id)
    stored = add_rows(basis, config, facts, write)
    partly = ranges.partial and not basis.options.waits
    return replace(basis.candidate(moved, partial=partly), stored=stored, whole=whole)


def add_rows(
    basis: Basis, config: Config, facts: tuple[int, int, int], write: Callable[[str], object]
) -> StoredTarget:
    """Write the rows of a target to its store, as `add_target`.

    Parameters
    ----------
    facts
        The digest of the rows, the members of the group, and the number of rows.
    """
    assert basis.store is not None
    place = basis.group_id, basis.group_epoch, basis.computation_id
    stored = StoredTarget(*place, 0, *facts)
    patience_s = config.engine.timeout_ms / 1000
    version = add_target(
        basis.store, stored, write, patience_s, config.log.retention_days, sync=config.log.fsync
    )
    return stored._replace(version=version)


def make_whole(ranges: PartitionRanges, topics: TopicKeys) -> WholeTarget:
    """Return an assignment as a whole target: what `WholeTarget.of` says of its rows.

    Parameters
    ----------
    topics
        Those of the ranges, and maybe others.
    """
    counts = count_by(ranges.member, len(ranges.member_ids))
    starts = offsets_of(counts)[:-1]
    order = _order_by_id(ranges.member_ids)
    order = order[counts[order] > 0]
    sorted_ = bool((order[1:] > order[:-1]).all())
    counts = counts[order]
    at = slice(None) if sorted_ else expand_runs(starts[order], counts)
    used = np.flatnonzero(count_by(ranges.topic, len(ranges.topics)))
    number = np.zeros(len(ranges.topics), dtype=np.int32)
    number[used] = np.arange(len(used), dtype=np.int32)
    keys = dict(zip(topics.names, topics.keys, strict=True))
    names = ranges.topics.take(pa.array(used)).to_pylist()
    first = ranges.first[at]
    return WholeTarget(
        ranges.member_ids.take(pa.array(order)),
        offsets_of(counts),
        [keys[name] for name in names],
        number[ranges.topic[at]],
        first,
        first + ranges.count[at],
    )


def _order_by_id(member_ids: pa.StringArray) -> Longs:
    """Return the permutation that sorts member ids; static members come first in member order."""
    if pc.all(pc.less(member_ids[:-1], member_ids[1:])).as_py():
        return np.arange(len(member_ids))
    return np.asarray(pc.sort_indices(member_ids), dtype=np.int64)


def list_rows(whole: WholeTarget) -> pa.Table:
    """Return the rows of a target, in their order, as the table of targets has them.

    Texts come once, with a number in each row.
    """
    names, ids = TopicKeys(whole.keys).arrow
    owner, topic = pa.array(whole.owners()), pa.array(whole.topic)
    coded = pa.DictionaryArray.from_arrays
    return pa.table(
        {
            "member_id": coded(owner, whole.member_ids),
            "topic_id": coded(topic, ids),
            "topic": coded(topic, names),
            "first_partition": whole.first,
            "partition_count": whole.end - whole.first,
        }
    )
