"""Who owned which partitions over time, as a picture of a bounded size: lanes, bars and marks.

Few partitions have a lane each, and a bar is a row of the history. Many share lanes, which are cut
into cells of time; a cell shows who owned most of its lane, or, of very many owners, how many
partitions changed hands. All is done by columns: the picture costs as much as the history has rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unicodedata import east_asian_width

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Longs, offsets_of
from coordinator.display.printable import visible
from coordinator.display.times import format_time
from coordinator.history.keyed_rows import (
    combine_chunks,
    find_changes,
    number_runs,
    to_mask,
    to_numbers,
)

LANES, CELLS = 40, 240
BARS_MAX = 1_200
"""Rows that are drawn as they are; more are drawn as cells."""
SAMPLES_MAX = 4_000_000
"""The product of owners, lanes and cells that is counted to find who owned most."""
WIDTH, LANE_PX = 960, 16
LETTER_PX, GUTTER_PX = 7, 16
COLOURS = 10
LABEL_MAX = 22
NAMED_MAX = 4
HEAT = (0.001, 0.01, 0.1, 0.5)
FOREVER = 1 << 62
Grid = npt.NDArray[np.int64]


class Bar(NamedTuple):
    """A rectangle: where it is, in pixels, its class, what it tells, and its name if that fits."""

    x: float
    y: int
    width: float
    height: int
    kind: str
    title: str
    name: str


class Span(NamedTuple):
    """Partitions from the first one of a topic to the last one of another, by name, or the same."""

    topic: str
    first: int
    until: str
    last: int


class Lane(NamedTuple):
    """A row of the picture: from the first partition of the topic to the last one of `until`."""

    y: int
    label: str
    topic: str
    first: int
    until: str
    last: int


class EpochMark(NamedTuple):
    """One or more epochs that began at a pixel."""

    x: float
    title: str
    position: int


class Tick(NamedTuple):
    """A time on the axis."""

    x: float
    text: str


@dataclass(slots=True)
class Picture:
    """What is drawn.

    Attributes
    ----------
    kind
        `rows` of the history; `owners`, who owned most of a lane; or `moves`.
    begin_ms, end_ms
        The window of time.
    owners, partitions
        How many there are in it.
    """

    kind: str
    begin_ms: int
    end_ms: int
    owners: int = 0
    partitions: int = 0
    lanes: list[Lane] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    marks: list[EpochMark] = field(default_factory=list)
    ticks: list[Tick] = field(default_factory=list)
    cursor: float | None = None

    @property
    def height(self) -> int:
        """Of all lanes, in pixels."""
        return len(self.lanes) * LANE_PX

    @property
    def gutter(self) -> int:
        """Of the names of the lanes, in pixels: what the longest one needs."""
        longest = max((_measure(lane.label) for lane in self.lanes), default=0)
        return GUTTER_PX + LETTER_PX * longest


def draw(
    history: pa.Table,
    epochs: pa.Table,
    window: tuple[int, int],
    *,
    only: Span | None = None,
    cursor_ms: int | None = None,
) -> Picture:
    """Return the picture of a window of time.

    Parameters
    ----------
    history, epochs
        These views, of one group.
    window
        Begin and end, ms.
    only
        The partitions to show.
    cursor_ms
        A time to mark.
    """
    begin, end = window
    end = max(end, begin + 1)
    rows = _Rows.of(history, begin, end, only)
    picture = Picture("rows", begin, end, len(rows.owners), int(rows.sizes.sum()))
    if len(rows.low):
        edges = _cut_lanes(rows)
        picture.lanes = _name_lanes(rows, edges)
        exact = int(rows.sizes.sum()) <= LANES
        if exact and len(rows.low) <= BARS_MAX:
            picture.bars = _draw_rows(rows, picture)
        else:
            sampled = len(rows.owners) * (len(edges) - 1) * CELLS <= SAMPLES_MAX
            picture.kind = "owners" if sampled else "moves"
            picture.bars = (_draw_owners if sampled else _draw_moves)(rows, edges, picture)
    picture.marks = _mark_epochs(epochs, begin, end)
    picture.ticks = _make_ticks(begin, end)
    if cursor_ms is not None and begin <= cursor_ms <= end:
        picture.cursor = _place(cursor_ms, begin, end)
    return picture


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of the history in a window, on one line of all partitions, by topic.

    Attributes
    ----------
    low, high
        Where each range begins and ends on the line.
    since, until
        ms; `FOREVER` while it is owned.
    owner
        An index of `owners`, numbered as they came.
    topics, sizes
        The topics, and how many partitions of each there are; the line begins at `shift` of each.
    """

    table: pa.Table
    low: Longs
    high: Longs
    since: Longs
    until: Longs
    owner: Longs
    owners: list[str]
    topics: list[str]
    sizes: Longs
    shift: Longs

    @classmethod
    def of(cls, table: pa.Table, begin: int, end: int, only: Span | None) -> _Rows:
        since, until = _to_ms(table["since"], 0), _to_ms(table["until"], FOREVER)
        here = (since < end) & (until > begin)
        first, last = (to_numbers(table[name]) for name in ("first_partition", "last_partition"))
        if only is not None:
            topic = table["topic"]
            least = np.where(to_mask(pc.equal(topic, only.topic)), only.first, 0)
            most = np.where(to_mask(pc.equal(topic, only.until)), only.last, FOREVER)
            here &= to_mask(pc.greater_equal(topic, only.topic)) & (last >= least)
            here &= to_mask(pc.less_equal(topic, only.until)) & (first <= most)
            first, last = np.maximum(first, least), np.minimum(last, most)
        table = table.filter(pa.array(here))
        first, last, since, until = (one[here] for one in (first, last, since, until))
        names = combine_chunks(table["topic"]).dictionary_encode()
        order = np.argsort(np.array(names.dictionary.to_pylist(), dtype=object), kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        topic_of = rank[names.indices.to_numpy()] if len(table) else np.zeros(0, np.int64)
        topics = [names.dictionary[int(at)].as_py() for at in order]
        low = np.zeros(len(order), np.int64)
        if only is not None and only.topic in topics:
            low[topics.index(only.topic)] = only.first
        ends = np.zeros(len(order), np.int64)
        np.maximum.at(ends, topic_of, last + 1)
        shift = offsets_of(ends - low)[:-1] - low
        owner, owners = _number_owners(table, since)
        return cls(
            table, first + shift[topic_of], last + 1 + shift[topic_of], since, until, owner,
            owners, topics, ends - low, shift,
        )  # fmt: skip


def _number_owners(table: pa.Table, since: Longs) -> tuple[Longs, list[str]]:
    """Number members in the order in which they came; return each row's, and their names."""
    coded = combine_chunks(table["member_id"]).dictionary_encode()
    code = coded.indices.to_numpy() if len(table) else np.zeros(0, np.int64)
    came = np.full(len(coded.dictionary), FOREVER)
    np.minimum.at(came, code, since)
    order = np.argsort(came, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[code], coded.dictionary.take(pa.array(order)).to_pylist()


# Lanes -------------------------------------------------------------------------------------------


def _cut_lanes(rows: _Rows) -> Longs:
    """Return where lanes begin on the line of all partitions, and where the last one ends."""
    total = int(rows.sizes.sum())
    ends = np.cumsum(rows.sizes)
    if total <= LANES:
        return np.arange(total + 1)
    if len(rows.sizes) > LANES:
        return np.unique(np.linspace(0, total, LANES + 1).astype(np.int64))
    share = np.maximum(1, np.floor((LANES - len(ends)) * rows.sizes / total).astype(np.int64) + 1)
    lanes = np.minimum(share, rows.sizes)
    pieces = [
        np.linspace(end - size, end, count + 1)[:-1]
        for end, size, count in zip(ends, rows.sizes, lanes, strict=True)
    ]
    return np.append(np.concatenate(pieces), total).astype(np.int64)


def _name_lanes(rows: _Rows, edges: Longs) -> list[Lane]:
    ends = np.cumsum(rows.sizes)
    first_topic = np.searchsorted(ends, edges[:-1], side="right")
    last_topic = np.searchsorted(ends, edges[1:] - 1, side="right")
    lanes = []
    for y, (low, high, one, two) in enumerate(
        zip(edges[:-1], edges[1:] - 1, first_topic, last_topic, strict=True)
    ):
        first, last = int(low - rows.shift[one]), int(high - rows.shift[two])
        topic = rows.topics[one]
        if one != two:
            label = f"{_abridge(topic)} … {_abridge(rows.topics[two])}"
        else:
            label = f"{_abridge(topic)} {first}" + (f"–{last}" if last > first else "")  # noqa: RUF001
        lanes.append(Lane(y * LANE_PX, label, topic, first, rows.topics[two], last))
    return lanes


def _measure(label: str) -> int:
    """Return how many letters a label is wide."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in visible(label))


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _abridge(text: str) -> str:
    """Leave out the middle of a long name: names of topics often begin alike."""
    half = (LABEL_MAX - 1) // 2
    return text if len(text) <= LABEL_MAX else f"{text[:half]}…{text[-half:]}"


# Bars --------------------------------------------------------------------------------------------


def _draw_rows(rows: _Rows, picture: Picture) -> list[Bar]:
    """Draw each row of the history as a bar over the lanes of its partitions."""
    bars = []
    order = np.lexsort((rows.low, rows.since))
    sorted_rows = rows.table.take(pa.array(order)).to_pylist()
    for at, row in zip(order.tolist(), sorted_rows, strict=True):
        x = _place(max(int(rows.since[at]), picture.begin_ms), picture.begin_ms, picture.end_ms)
        until = min(int(rows.until[at]), picture.end_ms)
        width = max(1.0, _place(until, picture.begin_ms, picture.end_ms) - x)
        height = int(rows.high[at] - rows.low[at]) * LANE_PX
        name = _name(row)
        shown = _shorten(name, max(2, int(width / 7)))
        kind = f"c{int(rows.owner[at]) % COLOURS}"
        bars.append(
            Bar(x, int(rows.low[at]) * LANE_PX, width, height, kind, _tell(row),
                shown if width > 7 * min(len(name), 4) + 6 else "")
        )  # fmt: skip
    return bars


def _name(row: dict[str, Any]) -> str:
    """Return the shortest name of a row's member that tells it: instance id, client, id."""
    found: str = row["instance_id"] or row["member_id"]
    client = row["client_id"]
    return (
        f"{client} {found}" if client and client not in found and len(found) > LABEL_MAX else found
    )


def _tell(row: dict[str, Any]) -> str:
    first, last = row["first_partition"], row["last_partition"]
    span = f"{first}–{last}" if last > first else str(first)  # noqa: RUF001
    until = f"{row['until']:%Y-%m-%d %H:%M:%S}" if row["until"] else "now"
    lost = f", lost: {row['until_reason']}" if row["until"] and row["until_reason"] else ""
    return (
        f"{row['topic']} {span}: {_name(row)}, {row['since']:%Y-%m-%d %H:%M:%S} to {until}; "
        f"got: {row['reason']} (epoch {row['assignment_epoch']}){lost}"
    )


def _count_changes(rows: _Rows, edges: Longs, picture: Picture) -> tuple[Longs, ...]:
    """Cut rows at the edges of lanes: return row, lane, partitions, first cell and end cell."""
    first = np.searchsorted(edges, rows.low, side="right") - 1
    last = np.searchsorted(edges, rows.high, side="left") - 1
    row, lane = number_runs(first, last - first + 1)
    count = np.minimum(rows.high[row], edges[lane + 1]) - np.maximum(rows.low[row], edges[lane])
    length = picture.end_ms - picture.begin_ms
    begin, end = (
        np.clip((one - picture.begin_ms) * CELLS // length, 0, CELLS)
        for one in (rows.since[row], np.minimum(rows.until[row], picture.end_ms + length))
    )
    return row, lane, count, begin, end


def _sum_cells(shape: tuple[int, ...], places: Sequence[Longs], weights: Longs) -> Grid:
    flat = np.ravel_multi_index(tuple(places), shape)
    size = int(np.prod(shape))
    return np.bincount(flat, weights=weights, minlength=size).astype(np.int64).reshape(shape)


def _draw_owners(rows: _Rows, edges: Longs, picture: Picture) -> list[Bar]:
    """Draw who owned most of each lane, sampled at the end of each cell."""
    row, lane, count, begin, end = _count_changes(rows, edges, picture)
    owner = rows.owner[row]
    shape = (len(edges) - 1, len(rows.owners), CELLS + 1)
    change = _sum_cells(shape, (lane, owner, begin), count)
    change -= _sum_cells(shape, (lane, owner, end), count)
    owned = np.cumsum(change, axis=2)[:, :, :CELLS]
    most, total = owned.argmax(axis=1), owned.sum(axis=1)
    best = owned.max(axis=1)
    size = np.diff(edges)[:, None]
    several = (owned > 0).sum(axis=1)
    kinds = np.where(best * 2 > size, most, np.where(total > 0, -2, -1))
    bars = []
    for y, x, until in _find_runs(kinds):
        kind, who = int(kinds[y, x]), rows.owners[int(most[y, x])]
        if kind == -1:
            continue
        share = 100 * int(best[y, x]) // int(size[y, 0])
        title = f"most by {who} ({share} %)" if several[y, x] > 1 else who
        if several[y, x] > 1:
            title += f", {int(several[y, x])} owners"
        name = f"c{kind % COLOURS}" if kind >= 0 else "mixed"
        bars.append(_cell_bar(y, x, until, name, f"{title}; {_say_when(picture, x, until)}"))
    return bars


def _draw_moves(rows: _Rows, edges: Longs, picture: Picture) -> list[Bar]:
    """Draw how many partitions of each lane changed hands in each cell, or had no owner."""
    row, lane, count, begin, end = _count_changes(rows, edges, picture)
    shape = (len(edges) - 1, CELLS + 1)
    change = _sum_cells(shape, (lane, begin), count) - _sum_cells(shape, (lane, end), count)
    owned = np.cumsum(change, axis=1)[:, :CELLS]
    came = rows.since[row] >= picture.begin_ms
    moved = _sum_cells(shape, (lane[came], begin[came]), count[came])[:, :CELLS]
    size = np.diff(edges)[:, None]
    heat = np.searchsorted(HEAT, moved / size, side="right")
    kinds = np.where((owned == 0) & (moved == 0), -1, np.where(owned < size, 10, 0) + heat)
    # Neighbours of one colour are one bar, which says how many moved in all of them.
    sums = np.cumsum(np.pad(moved, ((0, 0), (1, 0))), axis=1)
    bars = []
    for y, x, until in _find_runs(kinds):
        kind = int(kinds[y, x])
        if kind < 0:
            continue
        title = f"{int(sums[y, until] - sums[y, x]):,} of {int(size[y, 0]):,} changed hands"
        missing = int((size[y, 0] - owned[y, x:until]).max())
        if missing > 0:
            title += f", up to {missing:,} without an owner"
        name = f"{'gap ' if kind >= 10 else ''}h{kind % 10}"  # noqa: PLR2004 - as above
        bars.append(_cell_bar(y, x, until, name, f"{title}; {_say_when(picture, x, until)}"))
    return bars


def _find_runs(kinds: Grid) -> list[tuple[int, int, int]]:
    """Return lane, first cell and end of each run of equal cells."""
    lanes, cells = kinds.shape
    lane = np.repeat(np.arange(lanes), cells)
    begins = np.flatnonzero(find_changes(lane, kinds.ravel()))
    ends = np.append(begins[1:], lanes * cells)
    return [
        (begin // cells, begin % cells, (end - 1) % cells + 1)
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    ]


def _cell_bar(y: int, x: int, until: int, kind: str, title: str) -> Bar:
    px = WIDTH / CELLS
    return Bar(round(x * px, 1), y * LANE_PX, round((until - x) * px, 1), LANE_PX, kind, title, "")


def _say_when(picture: Picture, x: int, until: int) -> str:
    step = (picture.end_ms - picture.begin_ms) / CELLS
    one, two = (format_time(int(picture.begin_ms + step * at))[:19] for at in (x, until))
    return f"{one} to {two}".replace("T", " ")


# Epochs and the axis -----------------------------------------------------------------------------


def _mark_epochs(epochs: pa.Table, begin: int, end: int) -> list[EpochMark]:
    at = _to_ms(epochs["recorded_at"], 0)
    here = np.flatnonzero((at >= begin) & (at <= end))
    pixel = (at[here] - begin) * CELLS // (end - begin)
    first = np.flatnonzero(find_changes(pixel))
    bounds = np.append(first, len(here))
    marks = []
    for one, two in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        some = epochs.slice(int(here[one]), two - one).to_pylist()
        lines = [_tell_epoch(row) for row in some[:NAMED_MAX]]
        if len(some) > NAMED_MAX:
            lines.append(f"and {len(some) - NAMED_MAX:,} more epochs, to {some[-1]['group_epoch']}")
        x = _place(int(at[here[one]]), begin, end)
        marks.append(EpochMark(x, "\n".join(lines), some[-1]["position"]))
    return marks


def _tell_epoch(row: dict[str, Any]) -> str:
    who = f" ({row['member_id']})" if row["member_id"] else ""
    moved = f", {row['moved']:,} moved" if row["moved"] is not None else ""
    return f"epoch {row['group_epoch']}, {row['recorded_at']:%H:%M:%S}: {row['reason']}{who}{moved}"


STEPS_MS = [
    step * unit
    for unit, steps in (
        (1_000, (1, 2, 5, 10, 15, 30)), (60_000, (1, 2, 5, 10, 15, 30)),
        (3_600_000, (1, 2, 3, 6, 12)), (86_400_000, (1, 2, 7, 14, 30, 90, 365)),
    )
    for step in steps
]  # fmt: skip
TICKS_MAX = 8
DAY_MS = 86_400_000


def _make_ticks(begin: int, end: int) -> list[Tick]:
    length = end - begin
    step = next((one for one in STEPS_MS if length / one <= TICKS_MAX), length // TICKS_MAX + 1)
    ticks = []
    for at in range(-(-begin // step) * step, end + 1, step):
        text = format_time(at)
        by_day = step >= DAY_MS
        shown = text[:10] if by_day else text[11:19] if step % 60_000 else text[11:16]
        ticks.append(Tick(_place(at, begin, end), shown))
    return ticks


def _place(at: int, begin: int, end: int) -> float:
    return round(WIDTH * (at - begin) / (end - begin), 1)


def _to_ms(column: pa.ChunkedArray, otherwise: int) -> Longs:
    return to_numbers(combine_chunks(column).cast(pa.timestamp("ms", tz="UTC")), otherwise)
