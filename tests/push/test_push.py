"""Workers that listen, as members of a coordinator in this process."""

from __future__ import annotations

import ssl
import threading
import time
from contextlib import ExitStack

import pytest

from coordinator import Coordinator, Member
from coordinator.config import ConfigError, PushConfig
from coordinator.push.push import Push
from tests.member.runs import PATIENCE_S, Cut, until
from tests.member.runs import QUICK as SHORT
from tests.member.runs import SESSION_MS as SHORT_MS
from tests.push.workers import QUICK, SESSION_MS, STEADY, STEADY_MS, Worker
from tests.wire.test_access import certificates

__all__ = ["certificates"]
PAUSE_MS = SHORT_MS / 5
"""The longest that a worker may be silent, in a group with short sessions."""


@pytest.fixture
def coordinator():
    with Coordinator.open(None, config=QUICK, topics={"clicks": 2}) as found:
        yield found


@pytest.fixture
def steady():
    with Coordinator.open(None, config=STEADY, topics={"clicks": 2}) as found:
        yield found


@pytest.fixture
def worker():
    with closing(Worker()) as found:
        yield found


@pytest.fixture
def other():
    with closing(Worker()) as found:
        yield found


class closing:  # noqa: N801 - as in contextlib
    def __init__(self, worker):
        self.worker = worker

    def __enter__(self):
        return self.worker

    def __exit__(self, *_error):
        self.worker.close()


def push(coordinator, *workers, **settings):
    urls = tuple(getattr(worker, "url", worker) for worker in workers)
    wanted = PushConfig(**({"retry_ms": 50} | settings | {"workers": urls}))
    return Push(coordinator, wanted)


def offsets_of(coordinator):
    """The offsets that are committed, by partition of the topic."""
    found = coordinator.offset_fetch(group_id="g")["topics"]
    return {n: one["committed_offset"] for n, one in found.get("clicks", {}).items()}


def members_of(coordinator):
    (group,) = coordinator.consumer_group_describe("g")
    return group.get("members", [])


def owned(*workers):
    return sorted(number for worker in workers for _, number in worker.offsets)


@pytest.mark.behaviour("O-1", "O-2", "O-3", "O-7", "O-9", "O-15")
def test_a_worker_is_registered_and_asked_to_start(steady, worker):
    worker.said |= {"client_id": "lambda", "rack_id": "a"}
    with push(steady, worker):
        assert until(lambda: owned(worker) == [0, 1] and "ping" in worker.kinds())
        (member,) = members_of(steady)
        assert (member["client_id"], member["client_host"]) == ("lambda", "/127.0.0.1")
        assert member["rack_id"] == "a"
        assert count(steady, "push_workers", state="registered") == 1
        assert count(steady, "push_workers", state="waiting") == 0
    assert worker.kinds()[0] == "register"
    assert worker.when("start", ("clicks", 0))
    sessions = {asked["session"] for _, asked, _ in worker.bodies}
    assert len(sessions) == 1
    assert worker.bodies[-1][1]["session_timeout_ms"] == STEADY_MS
    assert members_of(steady) == []  # it left


@pytest.mark.behaviour("O-4", "O-5", "O-6")
def test_an_unreachable_worker_is_in_no_ones_way_and_tried_endlessly(coordinator, worker):
    with closing(Worker()) as gone:
        port = gone.port
    with push(coordinator, f"http://127.0.0.1:{port}", worker):
        assert until(lambda: owned(worker) == [0, 1])
        tried = count(coordinator, "push_lost_total", reason="unreachable") or 0
        assert until(
            lambda: count(coordinator, "push_lost_total", reason="unreachable") > tried + 2
        )
        with closing(Worker(port=port)) as back:
            assert until(lambda: len(owned(worker)) == 1 and owned(worker, back) == [0, 1])


@pytest.mark.behaviour("O-8")
def test_who_refuses_is_no_member_and_asked_again(coordinator, worker):
    worker.instead["register"] = lambda *_: (403, b"no")
    with push(coordinator, worker):
        assert until(lambda: worker.kinds().count("register") > 2)
        assert set(worker.kinds()) == {"register"}
        del worker.instead["register"]
        assert until(lambda: owned(worker) == [0, 1])


@pytest.mark.behaviour("O-10")
def test_a_lost_worker_is_registered_again_and_starts_over(coordinator, worker):
    with push(coordinator, worker):
        assert until(lambda: "ping" in worker.kinds())
        worker.instead["ping"] = lambda *_: (500, b"oh")
        assert until(lambda: worker.kinds().count("register") >= 2)
        del worker.instead["ping"]
        assert until(lambda: owned(worker) == [0, 1] and worker.kinds()[-1] == "ping")
    after = [asked["session"] for kind, asked, _ in worker.bodies if kind == "register"]
    assert len(set(after)) == len(after)
    first = worker.kinds().index("register", 1)
    assert "stop" not in worker.kinds()[:first]  # nothing is asked of who is lost


@pytest.mark.behaviour("O-11")
def test_one_request_at_a_time(steady, worker, other):
    slow = worker.right_answer
    worker.instead = dict.fromkeys(
        ("ping", "start", "stop"), lambda *a: (time.sleep(0.1), slow(*a))[1]
    )
    with push(steady, worker):
        assert until(lambda: owned(worker) == [0, 1])
        with push(steady, other):
            assert until(lambda: len(owned(other)) == 1)
    assert worker.busy_max == 1


@pytest.mark.behaviour("O-12")
def test_who_is_silent_gives_up_its_partitions_when_it_has_stopped_by_itself(
    coordinator, worker, other
):
    with push(coordinator, worker, other):
        assert until(lambda: len(owned(worker)) == len(owned(other)) == 1)
        (place,) = worker.offsets
        since, over = time.monotonic(), threading.Event()
        for kind in ("ping", "register"):
            worker.instead[kind] = lambda *_: (over.wait(PATIENCE_S), (200, b"{}"))[1]
        try:
            assert until(lambda: [at for at in other.when("start", place) if at > since])
        finally:
            over.set()
        started = other.when("start", place)[-1]
        answered = max(at for at, _, _ in worker.log if at < started)
        assert started - answered >= SESSION_MS / 1_000


@pytest.mark.behaviour("O-13")
def test_a_ping_brings_offsets_which_are_committed(steady, worker):
    with push(steady, worker):
        assert until(lambda: owned(worker) == [0, 1])
        worker.offsets |= {("clicks", 0): 17}
        seen = worker.kinds().count("ping")
        assert until(lambda: worker.kinds().count("ping") > seen + 1)
        worker.instead["stop"] = lambda *_: (200, b"{}")  # a ping alone has said it
    assert offsets_of(steady)[0] == 17


@pytest.mark.behaviour("O-14", "O-16")
def test_stop_everywhere_then_start_anywhere_from_where_it_was_stopped(steady, worker, other):
    def stop_slowly(kind, asked):
        worker.offsets |= dict.fromkeys(worker.offsets, 99)
        time.sleep(0.3)
        return worker.right_answer(kind, asked)

    worker.instead["stop"] = stop_slowly
    with push(steady, worker), ExitStack() as stack:
        assert until(lambda: owned(worker) == [0, 1])
        stack.enter_context(push(steady, other))
        assert until(lambda: len(owned(other)) == 1)
        (place,) = other.offsets
        assert other.offsets[place] == 99
        (stopped,), (started,) = worker.when("stop", place), other.when("start", place)
        assert stopped <= started


def test_a_worker_that_listens_shares_a_group_with_a_member(steady, worker):
    with push(steady, worker):
        assert until(lambda: owned(worker) == [0, 1])
        with Member(steady, group_id="g", topics="clicks") as member:
            (place,) = member.wait_for_change(PATIENCE_S).owned
            assert owned(worker) == [1 - place.partition]
        assert until(lambda: owned(worker) == [0, 1])


def test_who_hangs_in_a_stop_works_no_longer_than_its_member_has(worker):
    """A ping that is answered after its member stopped, by the clock, gives it no more time."""

    def slowly(kind, asked):
        time.sleep(0.5 * PAUSE_MS / 1_000)
        return worker.right_answer(kind, asked)

    with Coordinator.open(None, config=SHORT, topics={"clicks": 2}) as coordinator:
        line = Cut(coordinator)
        with Member(coordinator, group_id="g", topics="clicks") as member, push(line, worker):
            assert until(lambda: len(owned(worker)) == len(member.owned) == 1)
            (place,) = worker.offsets
            worker.instead |= {"ping": slowly, "stop": lambda *_: (time.sleep(1), (200, b"{}"))[1]}
            line.cut = True
            assert until(lambda: place in member.owned)
            assert worker.works_until() <= time.monotonic()
            line.cut = False


def count(coordinator, name, **labels):
    return coordinator.metrics.registry.get_sample_value(name, labels)


def lie(worker, *more):
    worker.instead["ping"] = lambda *_: (200, worker.report(*more))


@pytest.mark.parametrize(
    "row",
    [("clicks", 7, 5), ("other", 0, 5), ("clicks", 0, 3)],
    ids=["not its own", "no such topic", "before its last"],
)
def test_offsets_that_are_lies_do_not_count(steady, worker, row):
    with push(steady, worker):
        assert until(lambda: owned(worker) == [0, 1])
        worker.offsets |= {("clicks", 0): 5, ("clicks", 1): 6}
        seen = len(worker.log)
        assert until(lambda: "ping" in worker.kinds()[seen + 1 :])
        lie(worker, row)
        assert until(lambda: count(steady, "push_offsets_refused_total"))
    assert offsets_of(steady) == {0: 5, 1: 6}
    assert worker.kinds().count("register") == 1


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b"\xff", b"<html>", b'{"offsets": 3}', b"[" * 100_000,
        b'{"offsets": [{"topic": "clicks", "partition": 0, "offset": -1}]}',
        b'{"offsets": [{"topic": "clicks", "partition": 0, "offset": 9223372036854775808}]}',
        b'{"offsets": [{"topic": "clicks", "partition": true, "offset": 1}]}',
        b"x" * 5_000,
    ],
    ids=lambda body: body[:60].decode("latin-1"),
)  # fmt: skip
def test_nonsense_ends_the_registration_and_nothing_else(coordinator, worker, other, body):
    with push(coordinator, worker, other, answer_bytes_max=4_000):
        assert until(lambda: len(owned(worker)) == len(owned(other)) == 1)
        worker.instead["ping"] = lambda *_: (200, body)
        assert until(lambda: worker.kinds().count("register") >= 2)
        wrong = count(coordinator, "push_lost_total", reason="wrong answer")
        assert wrong <= worker.kinds().count("register"), "the other one is not lost by it"
        del worker.instead["ping"]
        assert until(lambda: len(owned(worker)) == len(owned(other)) == 1)


def test_a_worker_may_report_all_that_it_works_on():
    topic, partitions = "x" * 249, 20_000  # 6 MB of JSON
    with (
        Coordinator.open(None, topics={topic: partitions}) as coordinator,
        closing(Worker(topics=[topic])) as worker,
        push(coordinator, worker),
    ):
        assert until(lambda: len(worker.offsets) == partitions)
        seen = len(worker.log)
        assert until(lambda: "ping" in worker.kinds()[seen + 1 :])
        assert worker.kinds().count("register") == 1
        assert not count(coordinator, "push_lost_total", reason="wrong answer")


def test_only_groups_that_are_allowed_are_joined(coordinator, worker):
    with push(coordinator, worker, groups=("billing",)):
        assert until(lambda: worker.kinds().count("register") >= 2)
        assert set(worker.kinds()) == {"register"}
    assert coordinator.list_groups()["groups"] == []


def test_a_pattern_that_is_none_is_refused_and_tried_again(coordinator, worker):
    worker.said |= {"pattern": "("}
    with push(coordinator, worker):
        assert until(lambda: worker.kinds().count("register") >= 2)
    assert owned(worker) == []


def test_workers_are_reached_over_tls(coordinator, certificates):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    with closing(Worker(tls=tls)) as worker:
        with push(coordinator, worker):
            assert until(lambda: count(coordinator, "push_lost_total", reason="unreachable"))
        assert worker.log == []  # an untrusted authority
        with push(coordinator, worker, tls_ca=str(certificates / "ca.pem")):
            assert until(lambda: owned(worker) == [0, 1])


def test_workers_get_the_token(coordinator, worker, tmp_path):
    (tmp_path / "token").write_text("secret\n")
    with push(coordinator, worker, token_file=str(tmp_path / "token")):
        assert until(lambda: "ping" in worker.kinds())
    assert {headers["Authorization"] for _, _, headers in worker.bodies} == {"Bearer secret"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--push", "worker"], "give http://host:port or https://host:port"),
        (["--push", "http://w1.example:1"], "beyond this machine without TLS"),
        (["--push", "http://[::1]:1", "--push", "http://[::1]:1/"], "twice"),
    ],
)
def test_what_cannot_be_pushed_to_is_refused_before_the_store_is_made(
    muster_here, tmp_path, words, says
):
    done = muster_here("serve", "--store", tmp_path / "store", *words)
    assert done.returncode == 2
    assert says in done.stderr.decode()
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("token", [None, "", "two words", "\u00fc"])
def test_a_token_that_cannot_be_sent_is_refused(coordinator, tmp_path, token):
    if token is not None:
        (tmp_path / "token").write_text(token)
    with pytest.raises(ConfigError, match=r"push\.token_file"):
        push(coordinator, "http://127.0.0.1:1", token_file=str(tmp_path / "token"))
    with pytest.raises(ConfigError, match=r"push\.tls_ca"):
        push(coordinator, "http://127.0.0.1:1", tls_ca=str(tmp_path / "ca"))
