"""[store]: how object stores are reached, and that credentials stay secret."""

from __future__ import annotations

import logging
import re
import traceback

import pytest

from coordinator import Coordinator
from coordinator.config import Config, ConfigError, StoreConfig, parse
from coordinator.history import frame
from coordinator.storage.compaction import compact
from coordinator.storage.delta_log import DeltaLog
from coordinator.storage.record_log import LogError
from coordinator.storage.tables.store_files import files_at
from coordinator.storage.tables.store_options import use_settings
from coordinator.verify.store import verify
from tests.support.lives import life
from tests.support.longer import EVERY
from tests.support.s3.client import SECRET

NOWHERE = "http://127.0.0.1:9"
QUICK = StoreConfig(connect_timeout_ms=500, request_timeout_ms=500, retries=1)


@pytest.fixture(autouse=True)
def _as_before():
    yield
    use_settings(StoreConfig())


@pytest.fixture
def elsewhere(s3, monkeypatch):
    """A server that the environment does not name."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", NOWHERE)
    monkeypatch.setenv("AWS_REGION", "nowhere-1")
    return s3


@pytest.mark.parametrize("addressing", ["auto", "path"])
def test_an_endpoint_and_a_region_come_before_the_environment(elsewhere, addressing):
    store = elsewhere.new_store()
    settings = StoreConfig(endpoint=elsewhere.endpoint, region="us-east-1", addressing=addressing)
    with Coordinator.open(store, topics={"a": 1}, config=Config(store=settings)) as coordinator:
        assert coordinator.status == "active"
    assert frame(store, "log").num_rows == 2


def test_commands_without_a_config_take_the_file_of_the_environment(
    elsewhere, muster_here, tmp_path, monkeypatch
):
    store = elsewhere.new_store()
    use_settings(StoreConfig(endpoint=elsewhere.endpoint))
    with Coordinator.open(store, topics={"a": 1}):
        pass
    named = tmp_path / "muster.toml"
    named.write_text(f'[store]\nendpoint = "{elsewhere.endpoint}"\n')
    monkeypatch.setenv("MUSTER_CONFIG", str(named))
    for words in (["verify"], ["groups"]):
        said = muster_here(*words, "--store", store)
        assert said.returncode == 0, said.stderr


def test_a_bucket_in_the_host_name(s3):
    use_settings(StoreConfig(endpoint=s3.endpoint, addressing="virtual"))
    s3.requests()
    assert files_at(s3.new_store()).names(s3.new_store()) == []
    assert (requests := s3.requests())
    assert not any("/bucket/" in one for one in requests)


def test_time_outs_and_retries_are_kept(s3):
    use_settings(StoreConfig(request_timeout_ms=200, retries=2))
    s3.fault("stall", method="GET", times=9)
    s3.requests()
    with pytest.raises(OSError, match=r"does not answer: no connection, or nothing in time|body"):
        files_at(s3.new_store()).read(f"{s3.new_store()}/a")
    assert len(s3.requests()) <= 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('endpoint = "minio:9000"', "store.endpoint is not a plain URL: give http://HOST:PORT"),
        (f'endpoint = "https://key:{SECRET}@host"', "store.endpoint is not a plain URL"),
        ('endpoint = "https://host/?a=b"', "store.endpoint is not a plain URL"),
        (f'endpoint = "https://[key:{SECRET}@host"', "store.endpoint is not a plain URL"),
        ('endpoint = "http://host:port"', "store.endpoint is not a plain URL"),
        ('region = "eu central"', "store.region is 'eu central': give a name such as"),
        ('addressing = "host"', "addressing"),
        ("request_timeout_ms = 0", "store.request_timeout_ms is 0: give 1 or more"),
        ("retries = -1", "store.retries is -1: give 0 or more"),
        ('access_key = "a"', "unknown setting store.access_key: [store] has endpoint, region"),
    ],
)
def test_settings_that_cannot_be_are_refused(text, said):
    with pytest.raises(ConfigError) as error:
        parse(f"[store]\n{text}", "muster.toml")
    assert said in str(error.value)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("AWS_ENDPOINT_URL", "127.0.0.1:9", "AWS_ENDPOINT_URL is not a plain URL"),
        ("AWS_ENDPOINT_URL_S3", "", "AWS_ENDPOINT_URL_S3 is not a plain URL"),
        ("AWS_ENDPOINT_URL", "http://ho st", "AWS_ENDPOINT_URL is not a plain URL"),
        ("AWS_ACCESS_KEY_ID", "KEY\n", "AWS_ACCESS_KEY_ID has a line break"),
        ("AWS_SESSION_TOKEN", "KEY\rEND", "AWS_SESSION_TOKEN has a line break"),
        ("AWS_ENDPOINT_URL", NOWHERE, f"{NOWHERE} does not answer: Connection refused"),
        ("AWS_ALLOW_HTTP", "maybe", "is not asked: http:// needs AWS_ALLOW_HTTP=true"),
    ][:: 1 if EVERY else 3],
)
def test_an_environment_that_cannot_be_is_said_in_one_line(
    s3, muster, monkeypatch, name, value, said
):
    """A client made of it panics: pages of Rust, and an exception that few catch."""
    monkeypatch.setenv(name, value)
    store = s3.new_store()
    done = muster("groups", "--store", store)
    assert done.returncode == (3 if "answer" in said else 2)
    assert said in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
    assert b"KEY" not in done.stderr.replace(name.encode(), b"")
    if value == "127.0.0.1:9":  # the tables of `assign` are reached by the same client
        done = muster("assign", "--members", store, "--topics", store, "--output", "out")
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)


def test_what_a_refusal_repeats_of_a_request_is_not_said(s3):
    """Servers of S3 send back the key's id, the signature, and a session's token."""
    store, heard = s3.new_store(), []
    coordinator = Coordinator.open(store, topics={"a": 1})
    coordinator.close()
    log = DeltaLog.open(store)
    log.claim("o", "", 1)
    for epoch in (1, 2):  # what it has open is older than what it has written
        log.append(life(epoch), epoch)
    s3.fault("403", times=99)
    uses = [
        lambda: list(log.replay()),
        lambda: log.append(life(3), 3),
        lambda: frame(store, "targets"),
        lambda: compact(store, Config(), 9),
        lambda: verify(store),
    ]
    for use in uses:
        with pytest.raises((LogError, OSError, ConfigError)) as error:
            use()
        heard.append(str(error.value))
    assert all("403 Forbidden" in text for text in heard)
    assert not [text for text in heard if re.search("AKIA|TOKEN|Sign[^a]|\x1b|\n", text)]


def test_credentials_stay_secret(s3, muster, caplog, monkeypatch):
    """Not in a log of any level, nor in an error, nor in where it came from."""
    caplog.set_level(logging.DEBUG)
    store, heard = s3.new_store(), []
    with Coordinator.open(store, topics={"a": 1}):
        pass
    for kind in ("403", "503", "cut", "never"):
        use_settings(QUICK)
        s3.fault(kind, times=99)
        for use in (
            lambda: Coordinator.open(store, takeover="refuse"),
            lambda: frame(store, "log"),
        ):
            try:
                use()
            except (RuntimeError, OSError, ConfigError) as error:
                heard += traceback.format_exception(error)
                while error is not None:  # what "from None" hides from users
                    heard += [str(error), repr(error)]
                    error = error.__context__
        s3.heal()
    monkeypatch.setenv("AWS_ENDPOINT_URL", NOWHERE)
    loud = {"RUST_LOG": "trace", "MUSTER_DEBUG": "1"}
    said = muster("verify", "--store", store, env=loud)
    assert said.returncode == 3
    heard += [said.stdout.decode(), said.stderr.decode()]
    heard += [f"{one.getMessage()} {one.exc_text}" for one in caplog.records]
    assert any("403 Forbidden" in text for text in heard)
    assert not [text for text in heard if SECRET in text]
