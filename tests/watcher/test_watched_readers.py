"""What reads a watched store says so, and what would change a group of it is refused at once."""

import json

import pytest

from assignors import SpecError
from coordinator.config import LeaseConfig
from coordinator.history.log_reader import LogReader
from coordinator.history.watched import read_watched
from coordinator.storage.inbox import Inbox
from coordinator.watcher.watch import watch
from tests.support.processes import run_as_text

from .recorded import FILES, FOLDER

BEGUN = "1970-01-01T00:16:49.000Z"
PAGES = (
    "/",
    "/group?id=g",
    "/history?id=g",
    "/picture?id=g",
    "/loads?id=g",
    "/offsets?id=g",
    "/plans?id=g",
    "/audit",
    "/doctor",
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("watched") / "store"
    with watch(FOLDER / "wide-00.jsonl", path) as watched:
        watched.wait(60)
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ("groups",),
        ("describe", "g"),
        ("history", "g"),
        ("explain", "g"),
        ("explain", "g", "--partition", "a/0"),
        ("plan", "g"),
        ("plans",),
        ("verify",),
        ("doctor",),
    ],
)
def test_commands_that_read_say_who_coordinates(store, arguments):
    done = run_as_text(*arguments, "--store", store)
    assert done.returncode == (arguments == ("doctor",)), done.stderr
    (line,) = done.stderr.splitlines()
    assert "the Kafka cluster of-" in line
    assert f"watched since {BEGUN}, from a dump of its topic of groups" in line
    assert "read up to 1970-01-01T00:25:16" in line
    for row in done.stdout.splitlines():
        json.loads(row)


def test_copies_say_who_coordinates(store, tmp_path):
    for words in (
        ("backup", "--store", store, "--into", tmp_path / "copy"),
        ("restore", "--from", tmp_path / "copy", "--store", tmp_path / "again"),
        ("verify", "--store", tmp_path / "again"),
    ):
        done = run_as_text(*words)
        assert done.returncode == 0, done.stderr
        assert "the Kafka cluster of-" in done.stderr
        json.loads(done.stdout)


def test_a_partition_is_explained_by_what_was_seen(store):
    (row,) = rows_of(
        run_as_text("history", "g", "--store", store, "--topic", "a"), last_of="a", of=0
    )
    done = run_as_text("explain", "g", "--partition", "a/0", "--store", store)
    assert json.loads(done.stdout) == row
    assert row["reason"]
    for wrong, said in ((("a/99",), "owned partition 99"), (("a/0", "--epoch", "3"), "--as-of")):
        done = run_as_text("explain", "g", "--partition", *wrong, "--store", store)
        assert (done.returncode, said in done.stderr) == (2, True)


def rows_of(done, *, last_of, of):
    """The newest row of a partition."""
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    ours = [r for r in rows if r["topic"] == last_of]
    ours = [r for r in ours if r["first_partition"] <= of <= r["last_partition"]]
    return [r for r in ours if r["since_position"] == max(one["since_position"] for one in ours)]


def test_epochs_say_how_much_moved(store):
    done = run_as_text("explain", "g", "--store", store)
    moved = [json.loads(line)["moved"] for line in done.stdout.splitlines()]
    assert sum(one for one in moved if one) > 10
    assert None in moved, "of epochs whose target came later"


@pytest.mark.parametrize(
    "arguments",
    [
        ("approve", "g", "p"),
        ("reject", "g", "p"),
        ("assign", "--group", "g"),
    ],
)
def test_commands_that_change_are_refused_at_once(store, arguments):
    before = LogReader(store).position
    done = run_as_text(*arguments, "--store", store)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "the Kafka cluster of-" in line
    assert "coordinates the groups" in line
    assert Inbox(str(store)).waiting() == []
    assert LogReader(store).position == before, "the store was not claimed for it"


def test_pages_say_who_coordinates(store):
    pytest.importorskip("starlette")
    from tests.web.browsing import browse

    pages = browse(store)
    cluster = read_watched(LogReader(store)).cluster_id
    for address in PAGES:
        found = pages.get(address)
        assert found.status_code == 200, (address, found.text)
        assert 'id="watched"' in found.text, address
        assert cluster in found.text, address
        assert "from a dump of its topic of groups" in found.text, address
    assert "The cluster is not watched now" in pages.get("/").text
    assert "No coordinator runs" not in pages.get("/group?id=g").text
    done = pages.get("/group.json?id=g").json()
    assert (done["kafka_cluster"], done["observed"]) == (cluster, "records")
    assert done["watched_since"] == BEGUN


def test_pages_decide_nothing(store):
    pytest.importorskip("starlette")
    from coordinator.web.plan_decider import PlanDecider

    decider = PlanDecider(str(store), LeaseConfig())
    with pytest.raises(SpecError, match=r"the Kafka cluster of-.* coordinates the groups"):
        decider.decide("approve", "g", "p", 1, "ann", "").result(60)
    decider.close()
    assert Inbox(str(store)).waiting() == []


def test_a_store_that_muster_coordinates_says_nothing(tmp_path):
    from coordinator import Coordinator

    with Coordinator.open(tmp_path / "own"):
        pass
    assert read_watched(LogReader(tmp_path / "own")) is None
    assert run_as_text("groups", "--store", tmp_path / "own").stderr == ""


def test_it_is_said_after_the_log_was_compacted(tmp_path):
    with watch(FOLDER / FILES[-1], tmp_path / "s") as watched:
        watched.wait(60)
    assert run_as_text("compact", "--store", tmp_path / "s").returncode == 0
    assert "the Kafka cluster of-" in run_as_text("groups", "--store", tmp_path / "s").stderr
