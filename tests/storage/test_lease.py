"""The lease: it says when to claim; two that want the store at once do not both get it."""

from __future__ import annotations

import errno
import shutil
import threading

import pytest
from obstore.store import MemoryStore

from coordinator.config import LeaseConfig
from coordinator.storage.lease import Lease
from coordinator.storage.record_log import CommitFailed, Unconfirmed
from coordinator.storage.tables.files import SwapLostError
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.storage.tables.object_files import ObjectFiles
from coordinator.storage.tables.patience import Patience
from coordinator.storage.tables.table_io import BusyError

TTL_MS, LATE_MS = 10_000, 2_500


class Clock:
    """Time passes when a thread sleeps."""

    def __init__(self, now_ms=1_000_000):
        self.now_ms = now_ms
        self.naps = 0
        self.alarm = lambda: None

    def __call__(self):
        return self.now_ms

    def sleep(self, seconds):
        self.now_ms += int(seconds * 1000)
        self.naps += 1
        self.alarm()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["disk", "objects"])
def place(request, tmp_path):
    """Return the root of a store, and the calls on its files."""
    if request.param == "disk":
        return str(tmp_path), Filesystem()
    return "memory://tests/store", ObjectFiles("memory://tests", MemoryStore())


@pytest.fixture
def lease(place, clock):
    def new(owner, address="", clock=clock, config=None):
        root, files = place
        config = config or LeaseConfig()
        return Lease(root, owner, address, config, clock, clock.sleep, files, clock)

    return new


@pytest.fixture
def write(place):
    """Return what writes the lease's file, as another process would."""
    root, files = place
    return lambda content: files.replace(f"{root}/_lease.json", content)


def test_a_free_store_is_taken_at_once(lease, clock):
    one = lease("one", "here:1")
    one.wait()
    one.publish_epoch(7)
    held = lease("two").holder()
    assert (held.owner, held.coordinator_epoch, held.address) == ("one", 7, "here:1")
    assert held.expires_ms == clock() + TTL_MS
    assert clock.naps == 0


def test_a_renewed_lease_keeps_others_out_until_it_is_released(lease, clock):
    one, two = lease("one"), lease("two")
    one.wait()

    def alarm():
        if clock.naps < 200:
            assert one.renew(clock())
        elif clock.naps == 200:
            one.release()

    clock.alarm = alarm
    two.wait()
    assert clock.naps == 200
    assert lease("three").holder().owner == "two"


def test_the_lease_of_a_dead_holder_expires(lease, clock):
    began = clock()
    lease("one").wait()
    lease("two").wait()
    assert TTL_MS <= clock() - began <= TTL_MS + LATE_MS


def test_a_lease_is_looked_at_when_it_may_have_ended(lease, clock):
    """A stand-by asks an object store once a second, and is not a second late for that."""
    config = LeaseConfig(ttl_ms=10_300)
    one, two = lease("one", config=config), lease("two", config=config)
    one.wait()
    clock.alarm = lambda: clock.naps == 2 and one.renew(clock())
    began = clock()
    two.wait()
    seen_ms = 1_000 if two._poll_ms == 1_000 else 200
    assert 0 <= clock() - began - 2 * seen_ms - 10_300 <= 200


def test_a_dead_holder_whose_clock_was_ahead_does_not_lock_everybody_out(lease, clock):
    began = clock()
    ahead = Clock(clock() + 365 * 86_400_000)
    lease("one", clock=ahead).wait()
    lease("two").wait()
    assert clock() - began <= TTL_MS + LATE_MS


@pytest.mark.parametrize("after_ms", [0, 10_000])
@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000])
@pytest.mark.parametrize("whose", ["holder", "stand-by"])
def test_a_clock_that_is_set_takes_nothing_from_who_renews(place, clock, whose, step_ms, after_ms):
    root, files = place
    ahead = {"holder": 10**12, "stand-by": 10**12}
    one, two = (
        Lease(root, name, "", LeaseConfig(), lambda name=name: clock() + ahead[name],
              clock.sleep, files, clock)
        for name in ahead
    )  # fmt: skip
    began = renewed = clock()
    one.wait()

    def alarm():
        nonlocal renewed
        if clock() - began > after_ms:
            ahead[whose] = 10**12 + step_ms
        if renewed + 2_000 <= clock() <= began + 20_000:
            renewed = clock()
            assert one.renew(renewed + ahead["holder"])

    clock.alarm = alarm
    two.wait()
    assert renewed - began > 15_000
    assert TTL_MS <= clock() - renewed <= TTL_MS + LATE_MS


@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000, 9_000])
@pytest.mark.parametrize("takeover", ["wait", "refuse"])
def test_a_clock_that_was_wrong_before_takes_nothing_from_who_renews(
    place, clock, step_ms, takeover
):
    """The date of a live lease may have passed for a process that sees it for the first time."""
    root, files = place
    one = Lease(root, "one", "", LeaseConfig(), clock, clock.sleep, files, clock)
    two = Lease(
        root, "two", "", LeaseConfig(), lambda: clock() + step_ms, clock.sleep, files, clock
    )
    one.wait()
    began = renewed = clock()

    def alarm():
        nonlocal renewed
        if renewed + 2_000 <= clock() <= began + 20_000:
            renewed = clock()
            assert one.renew(renewed)

    clock.alarm = alarm
    if takeover == "refuse":
        with pytest.raises(BusyError, match="held by one"):
            two.wait(takeover)
        return
    two.wait()
    assert renewed - began > 15_000
    assert TTL_MS <= clock() - renewed <= TTL_MS + LATE_MS


@pytest.mark.parametrize("takeover", ["wait", "refuse"])
def test_a_lease_that_ended_long_ago_is_looked_at_for_two_renewals(lease, clock, takeover):
    lease("one").wait()
    began = clock.now_ms = clock() + 10 * TTL_MS
    lease("two").wait(takeover)
    assert 4_000 <= clock() - began <= 4_000 + LATE_MS


def test_a_store_that_did_not_answer_takes_nothing_from_who_could_not_renew(place, lease, clock):
    root, files = place
    one, two = lease("one"), lease("two")
    one.wait()
    read, gone_ms, looked, renewed = files.read_tagged, clock() + 5_000, [], []

    def read_or_fail(path):
        if gone_ms <= clock() < gone_ms + 20_000:
            raise OSError(5, "503 Slow Down")
        looked.append(clock())
        return read(path)

    def alarm():
        if len(renewed) < 20 and looked and looked[-1] > gone_ms:  # the stand-by was faster
            assert one.renew(clock())
            renewed.append(clock())

    files.read_tagged = read_or_fail
    clock.alarm = alarm
    two.wait(patience=Patience(root, sleep=clock.sleep))
    assert len(renewed) == 20
    assert TTL_MS <= clock() - renewed[-1] <= TTL_MS + LATE_MS


def test_a_lease_that_lives_shorter_than_a_look_takes_ends_all_the_same(place, lease, clock):
    root, files = place
    lease("one", config=LeaseConfig(ttl_ms=3_600_000)).wait()  # by its date it lives for an hour
    read, looks = files.read_tagged, []

    def read_late(path):
        assert len(looks) < 10, "it waits endlessly"
        looks.append(clock.sleep(2 * TTL_MS / 1000))
        return read(path)

    files.read_tagged = read_late
    lease("two").wait(patience=Patience(root, sleep=clock.sleep))


def test_refuse_names_the_holder(lease):
    one = lease("one", "here:9092")
    one.wait()
    one.publish_epoch(3)
    with pytest.raises(BusyError) as error:
        lease("two").wait("refuse")
    assert "is held by one at here:9092 with coordinator epoch 3" in str(error.value)
    assert "until 1970-01-01 00:16:50 UTC" in str(error.value)
    assert lease("three").holder().owner == "one"


def test_force_takes_it_and_the_old_holder_notices(lease, clock):
    one, two = lease("one"), lease("two")
    one.wait()
    two.wait("force")
    assert clock.naps == 0
    assert not one.renew(clock())
    one.release()  # it has nothing to give back
    assert lease("three").holder().owner == "two"


def test_a_torn_file_holds_nothing(lease, write, clock):
    lease("one").wait()
    write(b'{"owner": "on')
    lease("two").wait("refuse")
    assert clock.naps == 0


def test_one_of_many_claimants_gets_the_lease(lease):
    ready, got = threading.Barrier(8), []

    def contend(name):
        mine = lease(name)
        ready.wait()
        try:
            mine.wait("refuse")
        except BusyError:
            return
        got.append(name)

    threads = [threading.Thread(target=contend, args=(f"c{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1


def test_a_process_stopped_at_a_bad_moment_does_not_keep_the_store(tmp_path, clock):
    """It holds the lock of the file, and will hold it until it is woken."""
    config = LeaseConfig(ttl_ms=100)
    stopped = Lease(str(tmp_path), "stopped", "", config, clock, clock.sleep)
    stopped.wait()
    with stopped._hold_lock():
        Lease(str(tmp_path), "next", "", config, clock, clock.sleep).wait()
    assert not stopped.renew(clock())


ODD = {
    "no UTF-8": b'{"owner": "\xff\xfe"}',
    "nothing": b"",
    "another type": b"[1]",
    "a number for a name": b'{"owner": 1}',
    "nested without end": b"[" * 100_000,
    "an infinite end": b'{"owner": "o", "coordinator_epoch": 1, "address": "", '
    b'"expires_ms": Infinity, "token": "t"}',
}


@pytest.mark.parametrize("content", ODD.values(), ids=ODD)
def test_a_file_that_is_not_a_lease_keeps_no_one_out(lease, write, clock, content, caplog):
    write(content)
    one = lease("one")
    one.wait("refuse")
    assert "_lease.json: " in caplog.text
    assert clock.naps == 0
    write(content)
    one.release()
    assert not one.renew(clock())
    assert one.retake()
    assert lease("two").holder().owner == "one"


@pytest.mark.parametrize("expires_ms", [2**62, 10**25, 253_402_300_800_000])
def test_an_endless_lease_is_refused(lease, write, expires_ms, clock):
    write(
        b'{"owner": "o", "coordinator_epoch": 1, "address": "", "expires_ms": %d, "token": "t"}'
        % expires_ms
    )
    with pytest.raises(BusyError, match=f"held by o .* until {expires_ms} ms after 1970"):
        lease("one").wait("refuse")
    began = clock()
    lease("one").wait()
    assert clock() - began <= TTL_MS + LATE_MS


def test_a_failed_release_is_logged(tmp_path, clock, caplog):
    one = Lease(str(tmp_path), "one", "", LeaseConfig(), clock, clock.sleep)
    one.wait()
    (tmp_path / "_lease.json").unlink()
    (tmp_path / "_lease.json").mkdir()
    one.release()
    assert "it will expire" in caplog.text


def test_a_renewal_of_an_object_is_one_request_as_long_as_it_is_ours(place, lease, clock, write):
    one = lease("one")
    one.wait()
    _, files = place
    read, reads = files.read_tagged, []
    files.read_tagged = lambda path: reads.append(path) or read(path)
    one.publish_epoch(3)
    assert one.renew(clock())
    assert len(reads) == 2 * files.has_locks
    assert lease("two").holder().coordinator_epoch == 3
    reads.clear()
    write(b"{}")  # by a writer without tags
    assert not one.renew(clock())
    assert one.retake()
    assert lease("two").holder().owner == "one"


def test_a_lease_is_kept_though_a_renewal_fails_and_no_longer_than_asked(lease, clock):
    one = lease("one", config=LeaseConfig(renew_ms=5))
    one.wait()
    failed, renewed = threading.Event(), threading.Event()

    def fail_once(now_ms):
        if not failed.is_set():
            failed.set()
            raise OSError(errno.EIO, "injected")
        renewed.set()
        return Lease.renew(one, now_ms)

    one.renew = fail_once
    with one.kept():
        clock.now_ms += LATE_MS
        renewed.clear()
        assert renewed.wait(60)
    assert failed.is_set()
    assert lease("two").holder().expires_ms == clock() + TTL_MS
    assert "muster-lease-kept" not in {thread.name for thread in threading.enumerate()}


def test_a_lost_answer_of_a_renewal_is_no_loss_of_the_lease(place, lease, clock):
    one = lease("one")
    one.wait()
    _, files = place
    swap, lost = files.swap, [OSError(5, "the answer is lost"), SwapLostError(11, "it had landed")]

    def swap_and_lose(*words):
        made = swap(*words)
        if lost:
            raise lost.pop(0)
        return made

    files.swap = swap_and_lose
    with pytest.raises(OSError, match="the answer is lost"):
        one.renew(clock())
    one.renew(clock())
    assert one.renew(clock())
    assert lease("two").holder().owner == "one"


def test_a_stand_by_outlives_failures_of_its_network_or_its_disk(place, lease):
    root, files = place
    lease("one").wait()
    read, naps = files.read_tagged, iter(range(100))

    def read_sometimes(path):
        if next(naps) % 3 == 1:
            raise OSError(5, "503 Slow Down")
        return read(path)

    files.read_tagged = read_sometimes
    two = lease("two")
    two.wait(patience=Patience(root, sleep=lambda _: None))
    files.read_tagged = read
    assert lease("three").holder().owner == "two"


@pytest.mark.parametrize("who", ["a dead holder", "one that renews again"])
def test_a_store_that_is_read_but_not_written_does_not_answer_again(
    place, lease, clock, caplog, who
):
    """As on a full disk: a stand-by reads the lease of who died, and cannot take it."""
    root, files = place
    brief = LeaseConfig(ttl_ms=4_000, renew_ms=1_000)
    one, two = lease("one", config=brief), lease("two", config=brief)
    one.wait()
    swap, room_ms, came = files.swap, clock() + 90_000, []

    def swap_or_fail(*arguments):
        if clock() < room_ms:
            raise OSError(errno.ENOSPC, "No space left on device")
        return swap(*arguments)

    def alarm():
        if clock() >= room_ms and len(came) < 8 and who == "one that renews again":
            came.append(clock())
            assert one.renew(clock())

    def said():
        return ["answers again" in record.message for record in caplog.records]

    files.swap, clock.alarm = swap_or_fail, alarm
    patience = Patience(root, sleep=lambda seconds: (seen.append(said()), clock.sleep(seconds)))
    seen = []
    patience.run(lambda: two.wait(patience=patience))
    assert len(seen) > 3
    assert all(one == [False] for one in seen), seen
    assert said() == [False, True]
    assert len(came) == (8 if who == "one that renews again" else 0)


@pytest.mark.parametrize("place", ["disk"], indirect=True)
def test_a_caller_that_does_not_stand_by_learns_of_a_disk_that_fails(place, lease):
    root, files = place
    files.read_tagged = lambda path: (_ for _ in ()).throw(OSError(28, "No space left", path))
    with pytest.raises(CommitFailed, match=f"{root} cannot be opened: .* No space left"):
        lease("one").wait(patience=Patience(root, sleep=lambda _: None))


def test_a_disk_that_confirms_nothing_ends_a_stand_by(tmp_path):
    patience = Patience(str(tmp_path), sleep=lambda _: None)
    patience.stands_by(None)
    patience.failed(OSError(errno.ENOSPC, "No space left"))
    with pytest.raises(Unconfirmed):
        patience.failed(Unconfirmed("the disk did not confirm"))


@pytest.mark.parametrize("place", ["disk"], indirect=True)
def test_a_stand_by_makes_no_new_store_where_its_own_was_moved_away(place, lease, clock, tmp_path):
    """As by a disk that is mounted no more: what is there in its place is no store of ours."""
    root, _ = place
    lease("one").wait()
    log = tmp_path / "log/_delta_log"
    log.mkdir(parents=True)
    seen = []

    def move(seconds):
        seen.append(sorted(path.name for path in tmp_path.iterdir()))
        if len(seen) == 3:
            log.mkdir(parents=True)

    def lose():
        if not seen:
            for path in tmp_path.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        clock.alarm = lambda: None

    clock.alarm = lose
    lease("two").wait(patience=Patience(root, sleep=move))
    assert seen == [[], [], []], "nothing is made there"
    assert lease("three").holder().owner == "two"
