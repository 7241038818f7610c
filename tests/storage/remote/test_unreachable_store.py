"""An object store that does not answer now: it is waited for, and not taken for damaged."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from functools import partial

import pytest

from coordinator import Coordinator
from coordinator.backup import backup
from coordinator.config import Config, ConfigError, LeaseConfig, LogConfig, StoreConfig
from coordinator.storage.delta_log import DeltaLog
from coordinator.storage.record_log import CorruptLog, LogError, Unreachable
from coordinator.storage.tables.files import StoreRefusedError
from coordinator.storage.tables.patience import is_waited_for
from coordinator.storage.tables.store_errors import find_refusal
from coordinator.storage.tables.store_files import files_at
from coordinator.storage.tables.store_options import use_settings
from coordinator.verify import verify
from tests.conftest import ROOT
from tests.support import members
from tests.support.lives import life
from tests.support.longer import EVERY
from tests.support.members import log_of
from tests.support.processes import running

TOPICS = {"clicks": 6}
join = partial(members.join, topics=TOPICS)
QUICK = StoreConfig(retries=0, retry_timeout_ms=1_000)
CONFIG = Config(store=QUICK, lease=LeaseConfig(ttl_ms=2_000, renew_ms=300))
BUSY = 3


@pytest.fixture
def store(s3):
    yield s3.new_store()
    use_settings(StoreConfig())


def full_store(store):
    with Coordinator.open(store, topics=TOPICS, config=CONFIG) as coordinator:
        join(coordinator, "m0")
    return store


class Opening:
    """A coordinator that is being opened in a thread."""

    def __init__(self, store, **options):
        self.found = self.error = None
        self._thread = threading.Thread(target=self._open, args=(store, options), daemon=True)
        self._thread.start()

    def _open(self, store, options):
        try:
            self.found = Coordinator.open(store, topics=TOPICS, config=CONFIG, **options)
        except Exception as error:  # noqa: BLE001 - what the test looks at
            self.error = error

    def end(self):
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self


def wait_until(said, condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, said
        time.sleep(0.05)


@pytest.mark.parametrize(
    "what",
    ["", "_backup.json", "_lease.json", "/log/_delta_log", "list-type", ".parquet"][
        :: 1 if EVERY else 2
    ],
)
def test_a_coordinator_waits_until_its_store_answers(store, s3, caplog, what):
    """Whatever it is that is not brought: marks, the lease, commits, lists, rows."""
    full_store(store)
    s3.fault("503", what, times=9_999)
    opening = Opening(store)
    wait_until("it does not wait", lambda: is_waited_for(store) or opening.error)
    time.sleep(1.5)  # it tries again meanwhile
    assert opening.error is None
    assert opening.found is None
    s3.heal()
    with opening.end().found as coordinator:
        (group,) = coordinator.consumer_group_describe("g")
        assert len(group["members"]) == 1
    assert not is_waited_for(store)
    said = [one.message for one in caplog.records if store in one.message]
    assert ["answers again after" in one for one in said] == [False, True], said
    assert said[0].endswith("503 Service Unavailable")


def test_a_new_store_is_waited_for_too(store, s3):
    s3.fault("503", "", "PUT", times=9_999)
    opening = Opening(store)
    wait_until("it does not wait", lambda: is_waited_for(store) or opening.error)
    s3.heal()
    with opening.end().found as coordinator:
        join(coordinator, "m0")


def test_a_stand_by_waits_for_a_store_and_then_stands_by(store, s3, caplog):
    """It looks at the lease for hours, and says of no minute of them that it waits for a store."""
    full_store(store)
    with Coordinator.open(store, topics=TOPICS, config=CONFIG) as first:
        opening = Opening(store)
        time.sleep(1.0)
        s3.fault("503", "_lease.json", "GET", times=1)
        wait_until("it does not wait", lambda: is_waited_for(store) or opening.error)
        wait_until("it waits on", lambda: not is_waited_for(store))
        assert opening.found is None
        assert first.status == "active"
    opening.end().found.close()


@pytest.mark.parametrize("what", ["", "list-type", "/log/_delta_log", ".parquet", "_lease.json"])
def test_a_store_that_refuses_ends_it_in_its_words(store, s3, what):
    full_store(store)
    s3.fault("403", what, times=9_999)
    error = Opening(store).end().error
    assert isinstance(error, ConfigError), repr(error)
    assert "403 Forbidden" in str(error)
    assert "AWS_ACCESS_KEY_ID" in str(error)


def test_a_store_that_refuses_while_it_is_waited_for_ends_that(store, s3):
    full_store(store)
    s3.fault("503", times=9_999)
    opening = Opening(store)
    wait_until("it does not wait", lambda: is_waited_for(store))
    s3.fault("403", times=9_999)
    assert isinstance(opening.end().error, ConfigError)


def test_a_caller_that_does_not_wait_gets_an_error(store, s3):
    full_store(store)
    s3.fault("503", times=9_999)
    error = Opening(store, takeover="refuse").end().error
    assert isinstance(error, Unreachable)
    assert "503 Service Unavailable" in str(error)


@pytest.mark.parametrize(
    ("why", "refuses"),
    [
        ("503 Slow Down (SlowDown)", False),
        ("500 Internal Server Error", False),
        ("429 Too Many Requests", False),
        ("400 Bad Request (RequestTimeout)", False),
        ("409 Conflict (OperationAborted)", False),
        ("http://10.0.0.1:9000 does not answer: no connection, or nothing in time", False),
        ("400 Bad Request (AuthorizationHeaderMalformed)", True),
        ("401 Unauthorized", True),
        ("403 Forbidden (AccessDenied)", True),
        ("404 Not Found (NoSuchBucket)", True),
        ("501 Not Implemented (NotImplemented)", True),
        ("http://10.0.0.1:9000 is not asked: http:// needs AWS_ALLOW_HTTP=true", True),
    ],
)
def test_only_what_time_may_mend_is_waited_for(why, refuses):
    found = find_refusal("s3://bucket/store/x", why)
    assert isinstance(found, StoreRefusedError) is refuses
    assert found is None or why in str(found)


def test_serve_waits_says_so_and_ends_at_once_when_it_is_asked_to(store, s3, tmp_path):
    full_store(store)
    s3.fault("503", times=9_999)
    (tmp_path / "m.toml").write_text(
        f"[store]\nretries = 0\nretry_timeout_ms = {QUICK.retry_timeout_ms}\n"
    )
    command = ["-m", "coordinator", "serve", "--store", store, "--listen", "127.0.0.1:0"]
    command += ["--http", "127.0.0.1:0", "--config", str(tmp_path / "m.toml"), "--topic", "a=1"]
    command[command.index("--http") + 1] = f"127.0.0.1:{free_port()}"
    pages = f"http://{command[command.index('--http') + 1]}"
    with running(
        [sys.executable, *command],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until(
            "it does not say that it waits",
            lambda: process.poll() is not None or page(pages + "/healthz") == WAITING_HEALTH,
        )
        assert process.poll() is None, process.stderr.read()
        assert page(pages + "/readyz") == (503, "waits for the store")
        code, text = page(pages + "/metrics")  # Prometheus says of one that waits that it is up
        assert (code, 'num_partitions{state="active"} 0.0' in text) == (200, True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr.read().count("waiting for the store") == 1


WAITING_HEALTH = (200, "waits for the store")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def page(url):
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode().strip()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode().strip()
    except OSError:
        return None


@pytest.mark.parametrize(
    "what",
    ["", "_lease.json", "_delta_log/0000", "checkpoint", "_last_checkpoint", ".parquet", "list-ty"],
)
def test_what_cannot_be_read_now_is_no_damage(store, s3, what):
    """No message says to restore, or to remove the lease of a coordinator that is alive."""
    with Coordinator.open(store, topics=TOPICS, config=CONFIG) as coordinator:
        join(coordinator, "m0")
        log_of(coordinator).maintain(pack=True)
        for kind in ("503", "cut"):
            s3.fault(kind, what, "GET", times=9_999)
            with pytest.raises((LogError, OSError)) as error:
                verify(store)
            assert isinstance(error.value, OSError | Unreachable), repr(error.value)
            for word in ("damaged", "restore", "remove"):
                assert word not in str(error.value)
        s3.heal()
        assert verify(store).groups == 1


@pytest.mark.parametrize("place", ["disk", "s3"])
def test_a_hint_at_a_checkpoint_that_was_replaced_is_no_damage(store, tmp_path, place):
    """Its put may land late, or be read from a copy that is late: readers find the newer one."""
    store = store if place == "s3" else str(tmp_path / "store")
    log = DeltaLog(store, LogConfig(commits_kept_ms=0))
    log.claim("one", "", 1)
    hint, files = f"{store}/log/_delta_log/_last_checkpoint", files_at(store)
    log.maintain(pack=True)
    old = files.read(hint)
    for epoch in range(2, 5):
        log.append(life(epoch), epoch)
    log.maintain(pack=True)
    named = json.loads(old)["version"]
    assert json.loads(files.read(hint))["version"] > named
    files.remove(f"{store}/log/_delta_log/{named:020}.checkpoint.parquet")
    files.replace(hint, old)
    assert verify(store).position == log.position
    assert DeltaLog(store).claim("two", "", 9) == 2
    files.replace(hint, old.replace(b'"version":', b'"version":9'))
    with pytest.raises(CorruptLog, match=r"names checkpoint 9.*, which does not exist"):
        verify(store)


@pytest.mark.parametrize(
    "words",
    [
        ["verify"],
        ["groups"],
        ["history", "g"],
        ["compact"],
        ["backup", "--into", "copy"],
        ["web", "--listen", "127.0.0.1:0"],
    ],
)
@pytest.mark.parametrize("what", ["", "/log/_delta_log", ".parquet"])
def test_commands_say_that_it_cannot_be_read_now(store, s3, muster_here, tmp_path, words, what):
    full_store(store)
    s3.fault("503", what, times=9_999)
    done = muster_here(*words, "--store", store, cwd=tmp_path)
    said = done.stderr.decode()
    assert done.returncode == BUSY, said
    assert said.count("\n") == 1
    assert "503 Service Unavailable" in said
    assert said.endswith(": try again later\n")
    for word in ("restore it", "damaged", "remove", "Errno", "room"):
        assert word not in said
    s3.heal()
    assert os.listdir(tmp_path) == []


def test_a_copy_that_cannot_be_read_now_is_no_damage(store, s3, muster_here, tmp_path):
    full_store(store)
    copy = s3.new_store()
    backup(store, copy)
    for what in ("_backup.json", ".parquet", ""):
        s3.fault("503", what or copy.rpartition("/")[2], times=9_999)
        done = muster_here("restore", "--from", copy, "--store", "new", cwd=tmp_path)
        assert done.returncode == BUSY, done.stderr
        assert b"503 Service Unavailable" in done.stderr
        assert os.listdir(tmp_path) == []
        done = muster_here("verify", "--store", copy, cwd=tmp_path)
        assert done.returncode == BUSY, done.stderr
        assert b"another backup" not in done.stderr
    s3.heal()
    assert json.loads(muster_here("verify", "--store", copy).stdout)["sound"]
