"""What a node does with a shard that comes, goes, and comes back: as the simulator found it out."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from coordinator.config import Config, LeaseConfig
from coordinator.errors import GroupError
from coordinator.shards import shards_here
from coordinator.shards.shards_here import ShardsHere
from coordinator.storage.shards import Shards
from tests.support.members import wait_for

GROUP, SHARD = "billing", Shards(4).shard_of("billing")


class Served:
    """A coordinator of a shard, which loses its log when it is to."""

    def __init__(self, *, lost_when_asked=False):
        self.epoch, self.status, self.makes_way, self.closed = 1, "active", False, False
        self._lost_when_asked = lost_when_asked

    def make_way(self, *, on):
        self.makes_way = on

    def confirm_status(self):
        if self._lost_when_asked:
            self.status = "fenced"
        return self.status

    def close(self):
        self.closed = True


class Stop(threading.Event):
    """What a partition's work is stopped by; work waits no longer than it takes."""

    def wait(self, timeout=None):
        return super().wait(min(timeout, 0.02))


class Here(ShardsHere):
    """As `ShardsHere`, whose claims are those of no log."""

    def __init__(self, **given):
        self.threads, self.opened, self.claiming = [], [], lambda: None
        self.ending = threading.Event()
        nothing = SimpleNamespace()
        super().__init__(
            *("store", Shards(4), Config(lease=LeaseConfig(ttl_ms=10)), nothing, nothing),
            *(self._begin, lambda: None, self.ending),
            **given,
        )

    def _begin(self, run, _name):
        thread = threading.Thread(target=run, daemon=True)
        self.threads.append(thread)
        thread.start()
        return thread

    def _open(self, _shard):
        self.claiming()
        self.opened.append(Served())
        return self.opened[-1]


@pytest.fixture
def begin():
    """Return what has a shard in a thread; all are stopped at the end."""
    begun = []

    def have(here, shard=SHARD):
        stop = Stop()
        thread = threading.Thread(target=here.have, args=(shard, stop), daemon=True)
        thread.start()
        begun.append((stop, thread))
        return stop, thread

    yield have
    for stop, thread in begun:
        stop.set()
        thread.join(5)


def files(monkeypatch, *answers):
    """Have the store say whether a shard has a log, the last answer again and again."""
    left = list(answers)

    def is_folder(_path):
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(shards_here, "files_at", lambda _: SimpleNamespace(is_folder=is_folder))


def test_a_list_that_fails_is_asked_for_again(monkeypatch, begin):
    """The error of it ended the node's membership, and all of its shards moved."""
    files(monkeypatch, OSError("the store does not answer"), False)
    here = Here()
    begin(here)
    wait_for(lambda: here.claims() == {SHARD: 0})


def test_a_shard_that_had_to_go_while_it_was_claimed_for_a_request_is_let_go(monkeypatch, begin):
    files(monkeypatch, False)
    here, may_claim = Here(), threading.Event()
    here.claiming = may_claim.wait
    stop, thread = begin(here)
    wait_for(lambda: here.claims() == {SHARD: 0})
    assert isinstance(here.find(GROUP), GroupError)  # it is being loaded
    stop.set()
    thread.join(5)
    may_claim.set()
    wait_for(lambda: here.opened and here.opened[0].makes_way)
    here.opened[0].status = "fenced"
    wait_for(lambda: here.opened[0].closed)
    assert here.get(SHARD) is None


def test_a_shard_whose_first_claim_failed_is_claimed_again_though_no_one_asks(monkeypatch, begin):
    """The claim may be in its log: then the shard has one, and no coordinator."""
    files(monkeypatch, False, True)
    here, asked = Here(), []

    def fail_once():
        asked.append(SHARD)
        if len(asked) == 1:
            raise OSError("no answer to the claim")

    here.claiming = fail_once
    begin(here)
    wait_for(lambda: here.claims() == {SHARD: 0})
    here.find(GROUP)
    wait_for(lambda: here.get(SHARD) is not None)
    assert asked == [SHARD, SHARD]


def test_a_shard_without_a_log_is_claimed_where_another_has_made_one(monkeypatch, begin):
    """The claim of its former owner came late: each had it, and no one would have let it go."""
    files(monkeypatch, False, True)
    elsewhere = [0]
    here = Here(claimed_elsewhere=lambda _: elsewhere[0])
    begin(here)
    wait_for(lambda: here.claims() == {SHARD: 0})
    elsewhere[0] = 1
    wait_for(lambda: here.get(SHARD) is not None)


@pytest.mark.parametrize("hangs", ["the claim", "the list"])
def test_a_shard_goes_at_once_though_the_store_does_not_answer(monkeypatch, begin, hangs):
    """A node that was cut off its store while it loaded a shard left its group a minute later."""
    begun, answers = threading.Event(), threading.Event()

    def hang(*_path):
        begun.set()
        return answers.wait(10)

    def has_none(_path):
        return hang() and False

    here = Here()
    if hangs == "the claim":
        files(monkeypatch, True)
        here.claiming = hang
    else:
        monkeypatch.setattr(shards_here, "files_at", lambda _: SimpleNamespace(is_folder=has_none))
    stop, thread = begin(here)
    assert begun.wait(5)
    stop.set()
    thread.join(5)
    assert not thread.is_alive()
    answers.set()
    for one in here.threads:
        one.join(0.5)
    if hangs == "the claim":
        assert here.opened[0].makes_way, "what came too late is let go"
    else:
        assert (here.claims(), here.opened) == ({}, [])


def test_nothing_waits_for_a_claim_once_the_node_ends(monkeypatch, begin):
    files(monkeypatch, True)
    here = Here()
    stop, thread = begin(here)
    wait_for(lambda: here.get(SHARD) is not None)
    stop.set()
    thread.join(5)
    leaving = here.threads[-1]
    leaving.join(0.5)
    assert leaving.is_alive(), "no one has claimed it"
    here.ending.set()
    leaving.join(5)
    assert not leaving.is_alive()


def test_a_shard_that_came_back_is_claimed_again_though_it_was_lost_meanwhile(monkeypatch, begin):
    """Its state went when the loss was seen, and nothing saw after that that it was lost."""
    files(monkeypatch, True)
    here = Here()
    stop, thread = begin(here)
    wait_for(lambda: here.get(SHARD) is not None)
    first, looked = here.get(SHARD), threading.Event()

    def lose():
        looked.wait(5)
        first.status = "fenced"
        return first.status

    first.confirm_status = lose
    stop.set()
    thread.join(5)
    begin(here)
    wait_for(lambda: not first.makes_way)  # it is its own again
    looked.set()
    wait_for(lambda: len(here.opened) == 2)
    wait_for(lambda: here.get(SHARD) is here.opened[1])


def test_a_shard_without_requests_is_known_to_be_lost_from_the_other_nodes(monkeypatch, begin):
    files(monkeypatch, True)
    elsewhere = [0]
    here = Here(claimed_elsewhere=lambda _: elsewhere[0])
    begin(here)
    wait_for(lambda: here.get(SHARD) is not None)
    here.get(SHARD)._lost_when_asked = True
    elsewhere[0] = 2
    wait_for(lambda: len(here.opened) == 2)


class Reading(Here):
    """As `Here`, whose logs take as long to read as `claiming` says."""

    def _open(self, shard):
        return ShardsHere._open(self, shard)

    def read(self, _log):
        self.claiming()

    def load(self, _log):
        self.opened.append(Served())
        return self.opened[-1]


@pytest.fixture
def reading(monkeypatch):
    """Return what reads long logs, and what was claimed."""
    files(monkeypatch, True)
    claimed = []

    def open_log(path, _config):
        return SimpleNamespace(claim=lambda *_: claimed.append(path) or 1, close=lambda: None)

    monkeypatch.setattr(shards_here, "LogAhead", SimpleNamespace(open=open_log))
    here = Reading()
    here._metrics = SimpleNamespace(claimed=lambda: None)
    return here, claimed


def test_a_shard_that_had_to_go_while_its_log_was_read_is_not_claimed(reading, begin):
    """Its next owner may have it: the claim would take it away from the one who serves."""
    here, claimed = reading
    reads, may_go_on = threading.Event(), threading.Event()
    here.claiming = lambda: reads.set() or may_go_on.wait(5)
    stop, thread = begin(here)
    assert reads.wait(5)
    assert not here.has_none()
    stop.set()
    may_go_on.set()
    thread.join(5)
    wait_for(here.has_none)
    assert (claimed, here.opened) == ([], [])


def test_a_shard_that_is_loaded_when_its_node_closes_is_closed_too(reading, begin):
    here, claimed = reading

    def load(_log):
        here.ending.set()
        here.close()
        return Reading.load(here, _log)

    here.load = load
    begin(here)
    wait_for(lambda: here.opened and here.opened[0].closed)
    assert len(claimed) == 1
    assert here.list_open() == []
