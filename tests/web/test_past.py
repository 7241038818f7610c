"""A group's past: the picture, the same as tables, loads, and one partition."""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from coordinator.history import frame
from coordinator.history.view_schemas import VIEW_SCHEMAS
from coordinator.web.lanes import CELLS, LANES, WIDTH, Span, draw
from tests.support.stories import NOON, Story, stored
from tests.web.browsing import browse, five_groups, rows_of

BEGIN = datetime.fromtimestamp(NOON / 1000, UTC)
NO_EPOCHS = VIEW_SCHEMAS["epochs"].empty_table()
CELL_S = 10


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return stored(five_groups(), tmp_path_factory.mktemp("store"))


def history_of(*rows):
    """Return a history: topic, first, last, owner, since and until in seconds."""
    names = ("topic", "first_partition", "last_partition", "member_id", "since", "until")
    full = []
    for row in rows:
        texts = dict(zip(names, row, strict=True))
        for name in ("since", "until"):
            texts[name] = None if texts[name] is None else BEGIN + timedelta(seconds=texts[name])
        full.append(dict.fromkeys(VIEW_SCHEMAS["assignment_history"].names) | texts)
    return pa.Table.from_pylist(full, VIEW_SCHEMAS["assignment_history"])


def window(seconds):
    return NOON, NOON + seconds * 1000


def at_pixel(picture, lane, cell):
    """Return the bar that covers a cell of a lane."""
    x, y = (cell + 0.5) * WIDTH / CELLS, picture.lanes[lane].y
    found = [b for b in picture.bars if b.x <= x < b.x + b.width and b.y <= y < b.y + b.height]
    assert len(found) < 2, "bars do not overlap"
    return found[0] if found else None


def test_few_partitions_have_a_lane_each_and_a_bar_each_row():
    history = history_of(
        ("a", 0, 2, "m1", 0, None), ("b", 0, 0, "m1", 0, 600), ("b", 0, 0, "m2", 600, None),
        ("b", 1, 1, "m3", -900, -10),
    )  # fmt: skip
    picture = draw(history, NO_EPOCHS, window(1200), cursor_ms=NOON + 300_000)
    assert (picture.kind, picture.owners, picture.partitions) == ("rows", 2, 4)
    assert [lane.label for lane in picture.lanes] == ["a 0", "a 1", "a 2", "b 0"]
    assert [(b.x, b.y, b.width, b.height, b.kind) for b in picture.bars] == [
        (0, 0, 960, 48, "c0"), (0, 48, 480, 16, "c0"), (480, 48, 480, 16, "c1"),
    ]  # fmt: skip
    assert picture.bars[1].title.startswith("b 0: m1, 2026-03-01 12:00:00 to 2026-03-01 12:10:00")
    assert picture.cursor == 240


def test_a_lane_of_several_topics_shows_its_partitions_alone():
    """Each lane of a picture leads to a picture of what it covers, down to single partitions."""
    names = [f"t{n:02}" for n in range(90)]
    history = history_of(*((name, low, low + 4, "m", 0, None) for name in names for low in (0, 5)))
    whole = draw(history, NO_EPOCHS, window(60))
    line = [(name, p) for name in names for p in range(10)]
    assert len(whole.lanes) == LANES
    seen = []
    for lane in whole.lanes:
        span = Span(lane.topic, lane.first, lane.until, lane.last)
        inner = draw(history, NO_EPOCHS, window(60), only=span)
        assert all(one.topic == one.until and one.first == one.last for one in inner.lanes)
        assert inner.bars[0].y == 0
        assert sum(bar.height for bar in inner.bars) == inner.height
        seen += [(one.topic, one.first) for one in inner.lanes]
    assert seen == line


@pytest.mark.parametrize("seed", range(6))
def test_many_partitions_show_who_owned_most_of_a_lane(seed):
    """Against a count partition by partition, cell by cell."""
    chance = random.Random(seed)
    owners = [f"m{n}" for n in range(chance.choice([2, 9]))]
    topics = {f"t{n}": chance.randint(30, 200) for n in range(chance.choice([1, 3, 60]))}
    length = CELLS * CELL_S
    rows, owned = [], {}
    for topic, size in topics.items():
        low = 0
        while low < size:
            high = min(size - 1, low + chance.randint(0, 40))
            begin = chance.randint(-length // 2, length)
            while begin < length:
                end = begin + chance.randint(1, length)
                owner = chance.choice(owners)
                rows.append((topic, low, high, owner, begin, None if end >= length else end))
                for p in range(low, high + 1):
                    owned.setdefault((topic, p), []).append((begin, end, owner))
                begin = end + chance.choice([0, 0, 50])
            low = high + 1
    picture = draw(history_of(*rows), NO_EPOCHS, window(length))
    assert picture.kind == "owners"
    assert len(picture.lanes) <= LANES
    sizes = {t: 1 + max((p for u, p in owned if u == t), default=-1) for t in topics}
    line = [(t, p) for t in sorted(topics) for p in range(sizes[t])]
    assert picture.partitions == len(line)
    starts = [line.index((lane.topic, lane.first)) for lane in picture.lanes]
    for number, (one, two) in enumerate(zip(starts, [*starts[1:], len(line)], strict=True)):
        for cell in range(3, CELLS, 37):
            at = (cell + 1) * CELL_S - 0.001  # the end of a cell
            counts = {}
            for key in line[one:two]:
                for begin, end, owner in owned.get(key, ()):
                    if begin <= at < end:
                        counts[owner] = counts.get(owner, 0) + 1
            bar = at_pixel(picture, number, cell)
            if not counts:
                assert bar is None
            elif max(counts.values()) * 2 > two - one:
                assert max(counts, key=counts.get) in bar.title
                assert bar.kind != "mixed"
            else:
                assert bar.kind == "mixed"


def test_very_many_owners_show_what_changed_hands():
    rows = [("t", n * 10, n * 10 + 9, f"m{n}", 0, 1000 if n < 100 else None) for n in range(9_000)]
    rows += [("t", n * 10, n * 10 + 9, f"x{n}", 1200, None) for n in range(100)]
    picture = draw(history_of(*rows), NO_EPOCHS, window(CELLS * CELL_S))
    assert (picture.kind, picture.owners, picture.partitions) == ("moves", 9_100, 90_000)
    assert at_pixel(picture, 0, 10).kind == "h0"
    gap, back = at_pixel(picture, 0, 110), at_pixel(picture, 0, 120)
    assert gap.kind == "gap h0"
    assert "up to 1,000 without an owner" in gap.title
    assert back.kind == "h3"
    assert back.title.startswith("1,000 of 2,")
    assert at_pixel(picture, 1, 110).kind == "h0"
    assert len(picture.bars) < 100


def test_a_picture_is_bounded_however_long_the_history_is():
    """A partition that changes hands ten thousand times, and ten thousand epochs."""
    rows = [("t", p, p, f"m{n % 7}", n, n + 1) for n in range(5_000) for p in (0, 1)]
    epochs = pa.Table.from_pylist(
        [
            dict.fromkeys(VIEW_SCHEMAS["epochs"].names)
            | {"recorded_at": BEGIN + timedelta(seconds=n), "group_epoch": n, "position": n}
            | {"reason": "member joined"}
            for n in range(5_000)
        ],
        VIEW_SCHEMAS["epochs"],
    )
    picture = draw(history_of(*rows), epochs, window(5_000))
    assert picture.kind == "owners"
    assert len(picture.bars) <= 2 * CELLS
    assert len(picture.marks) <= CELLS + 1
    assert "and 17 more epochs" in picture.marks[0].title
    assert draw(history_of(), NO_EPOCHS, window(1)).bars == []


def test_the_pages_tell_the_same_as_the_views(store):
    client = browse(store)
    found = client.get("/history.json?id=billing&rows=500&sort=since").json()
    known = frame(store, "assignment_history", group_id="billing")
    assert found["total"] == len(found["assignment_history"]) == len(known)
    assert found["epochs_total"] == len(frame(store, "epochs", group_id="billing"))
    rows = rows_of(client.get("/history?id=billing&member=m3"))
    assert {row[1] for row in rows if row and row[0].startswith("orders")} == {
        "m3client at localhost/127.0.0.1"
    }
    page = client.get("/picture?id=billing&span=all")
    assert page.text.count("<rect") > 10
    assert "member joined (m2)" in page.text
    zoomed = client.get("/picture?id=billing&topic=orders&first=3&last=4").text
    assert "orders 3" in zoomed
    assert "orders 5" not in zoomed


def quiet_group(tmp_path):
    """Return a store whose last row says that m2 owns what m1 gave up, and when that was."""
    story = Story("billing").topics(orders=2).join("m1", "orders").at(5).join("m2", "orders")
    store = stored(story.batches, tmp_path)
    since = frame(store, "assignment_history", group_id="billing")["since"]
    return store, int(max(since.to_pylist()).timestamp() * 1000)


def shown_window(client, query=""):
    """Return the pictured owners, and begin and end of the picture as it says them."""
    text = client.get(f"/picture?id=billing{query}").text
    begin, end = re.findall(r'<time datetime="([^"]+)"', text[text.rindex("From <") :])
    moments = (datetime.fromisoformat(one).timestamp() * 1000 for one in (begin, end))
    return set(re.findall(r"<title>orders \d+: (m\d)", text)), *moments


@pytest.mark.parametrize("passed_ms", [0, 1, 999, 3_600_000, -7_200_000])
def test_the_newest_owners_are_in_the_picture_while_nothing_is_written(tmp_path, passed_ms):
    """Also where the clock of the pages is behind that of the log."""
    store, last_ms = quiet_group(tmp_path)
    now_ms = last_ms + max(passed_ms, 0)
    for span in ("", "&span=15m", f"&from={NOON}"):
        owners, _, end = shown_window(browse(store, now_ms=last_ms + passed_ms), span)
        assert owners == {"m1", "m2"}
        assert now_ms <= end <= now_ms + 5_000  # what is shown leaves out parts of a second


def test_a_store_that_was_left_shows_what_happened_in_it(tmp_path):
    store, last_ms = quiet_group(tmp_path)
    later = last_ms + 30 * 24 * 3_600_000
    owners, begin, end = shown_window(browse(store, now_ms=later))
    assert (owners, begin < last_ms) == ({"m1", "m2"}, True)
    assert last_ms < end < last_ms + 120_000, "a little after what happened last"
    owners, begin, end = shown_window(browse(store, now_ms=later), "&span=all")
    assert (owners, begin < last_ms, end >= later) == ({"m1", "m2"}, True, True)
    owners, begin, end = shown_window(browse(store, now_ms=later), "&span=24h")
    assert (owners, begin > last_ms, end >= later) == ({"m1", "m2"}, True, True)


def test_a_partition_says_who_had_it_since_when_and_why(store):
    client = browse(store)
    page = " ".join(client.get("/partition?id=billing&topic=orders&partition=7").text.split())
    texts = " ".join(re.sub("<[^>]+>", "", page).split())
    assert "It has no owner. m3" in texts
    assert re.search(r"m3\S* lost it 2026-03-01 \S+ UTC: session timeout\.", texts)
    rows = rows_of(client.get("/partition?id=billing&topic=orders&partition=7"))
    assert [(row[0][:2], row[3], row[5]) for row in rows] == [
        ("m3", "subscription changed (m2)", "session timeout (m3)"),
        ("m2", "topics changed (orders grew from 6 to 8 partitions)", "subscription changed (m2)"),
    ]
    none = client.get("/partition?id=billing&topic=orders&partition=99")
    assert "No member of this group has owned it" in none.text
    owned = client.get("/partition.json?id=shipping&topic=parcels&partition=0").json()
    assert owned["target"] in {None, *(row["member_id"] for row in owned["assignment_history"])}


def test_loads_before_and_after(tmp_path):
    story = Story("billing").topics(orders=9)
    for number, name in enumerate(("m1", "m2", "m3")):
        story.at(number).join(name, "orders")
    client = browse(stored(story.batches, tmp_path))
    rows = rows_of(client.get("/loads?id=billing"))
    assert rows == [["3", "0", "3", "3"], ["4", "1", "0", "0"], ["5", "1", "0", "0"]]


def test_a_group_that_is_gone_still_has_a_past(tmp_path):
    story = Story("billing").topics(orders=2).join("m1", "orders").leave("m1")
    story.run(op="delete_group", group="billing")
    client = browse(stored(story.batches, tmp_path))
    assert client.get("/group?id=billing").status_code == 404
    assert len(rows_of(client.get("/history?id=billing"))) > 1
