"""`muster serve` and `muster user` as commands: what they refuse, and how they end."""

from __future__ import annotations

import base64
import contextlib
import gc
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coordinator import Coordinator
from coordinator.cli import serve, service
from coordinator.config import Config, ServerConfig, TopicsConfig, WatchConfig, WeightsConfig
from coordinator.display import progress
from coordinator.wire.codec import Api
from coordinator.wire.sasl import Users
from tests.display.test_progress import terminal
from tests.storage.test_store_modes import umask, wrong
from tests.support.longer import longer
from tests.support.members import log_of
from tests.support.processes import running, start
from tests.support.wire_client import Client
from tests.wire.test_audit import audited

__all__ = ["terminal"]
PATIENCE_S = 60
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
long = longer("make test-clients")


@contextlib.contextmanager
def served(folder, *words):
    """Start `muster serve` on a free port; gives the process and its address."""
    command = [sys.executable, "-m", "coordinator", "serve", "--listen", "127.0.0.1:0"]
    with (
        (folder / "errors").open("wb") as errors,
        running([*command, *words], stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        line = process.stdout.readline().decode()
        assert line.startswith("muster serves groups at "), (folder / "errors").read_text()
        yield process, line.split()[4]


def free_address():
    """Return an address that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return "{}:{}".format(*free.getsockname())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--log-level loud", "--log-level is 'loud': give one of debug, info, warning, error"),
        ("--takeover never", "--takeover is 'never': give one of wait, refuse, force"),
        ("--topic clicks", "--topic is 'clicks': give name=partitions, as in clicks=12"),
        ("--topic =3", "--topic is '=3': give name=partitions"),
        (
            "--topic a=1 --topics x.json",
            "--topics x.json and --topic a=1 exclude each other: give one of them",
        ),
        ("--topics nowhere.json", "the topics in nowhere.json cannot be read"),
        ("--listen nowhere", "server.listen is 'nowhere': give host:port"),
        ("--listen 0.0.0.0:9092", "or pass --insecure"),
        ("--listen 0.0.0.0:9092 --insecure", "say with --advertised"),
        ("--config nowhere.toml", "nowhere.toml cannot be read"),
        ("--config odd.toml", "log.folder_mode is '0777': give \"0700\" (its owner alone)"),
        ("--store file", "--store file cannot be created: File exists: give a writable folder"),
        ("--store file/below", "--store file/below cannot be created: Not a directory"),
    ],
)
def test_bad_input_is_refused_in_one_line(muster_here, tmp_path, words, message):
    (tmp_path / "file").write_text("")
    (tmp_path / "odd.toml").write_text('log.folder_mode = "0777"')
    done = muster_here("serve", *words.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    said = done.stderr.decode().splitlines()[-1]
    assert said.startswith("muster: ")
    assert message in said


@pytest.mark.parametrize("option", ["--listen", "--http"])
def test_an_address_that_is_taken_is_refused_and_the_store_is_given_back(
    muster_here, tmp_path, monkeypatch, option
):
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # this process keeps its own
    other = [] if option == "--listen" else ["--listen", "127.0.0.1:0"]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = muster_here("serve", "--store", "store", option, address, *other, cwd=tmp_path)
    assert done.returncode == 2
    assert f"cannot listen on {address}: Address already in use: stop what" in done.stderr.decode()
    assert not (tmp_path / "store" / "_lease.json").exists()


def test_a_stop_hands_the_store_over_to_the_stand_by(tmp_path):
    store = ("--store", str(tmp_path / "store"), "--topic", "clicks=4")
    second = tmp_path / "second"
    second.mkdir()
    with served(tmp_path, *store) as (first, address):
        with Client(address) as client:
            assert client.join("g", "m1", "clicks").member_epoch == 2
        threading.Timer(2, first.terminate).start()
        with served(second, *store) as (successor, where):
            assert first.wait(PATIENCE_S) == 0
            with Client(where) as client:
                assert client.beat("g", "m1", 2).member_epoch == 2
            successor.send_signal(signal.SIGINT)
            assert successor.wait(PATIENCE_S) == 0
    assert not (
        tmp_path / "store" / "_lease.json"
    ).exists()  # a successor need not wait for its end
    said = [(folder / "errors").read_text() for folder in (tmp_path, second)]
    assert [one.partition(" INFO ")[2] for one in said] == [
        f"stopped by {number}\n" for number in ("SIGTERM", "SIGINT")
    ]


def test_wrong_logins_of_the_last_moment_are_in_the_audit(tmp_path):
    """They are written every `audit_ms`, 10 s; the pages' server was never closed."""
    (tmp_path / "users.toml").write_text('[users]\nann = "secret"\n')
    users = tmp_path / "users.toml"
    (tmp_path / "muster.toml").write_text(f'[server]\nhttp_users = "{users}"')
    address, config = free_address(), ("--config", str(tmp_path / "muster.toml"))
    store = ("--store", str(tmp_path / "store"))
    with served(tmp_path, *store, *config, "--http", address) as (process, _):
        login = {"Authorization": "Basic " + base64.b64encode(b"ann:guess").decode()}
        asked = urllib.request.Request(f"http://{address}/metrics", headers=login)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(asked, timeout=PATIENCE_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    with Coordinator.open(tmp_path / "store") as coordinator:
        log = log_of(coordinator)
        (found,) = [one for one in audited(log) if one.reason == "login_failed"]
    assert (found.owner, found.client_host) == ("User:ann", "127.0.0.1")


def test_a_source_of_topics_that_cannot_be_read_is_said_at_readyz(tmp_path):
    """The server starts without it; the log has one line of it, whatever is asked again."""
    (tmp_path / "muster.toml").write_text(
        "[topics]\npoll_ms = 100\n[server]\nlog_format = 'json'\n"
    )
    (tmp_path / "topics.toml").write_text("clicks = 4\n")
    topics = ("--topics", str(tmp_path / "topics.toml"), "--log-level", "warning")
    http, config = free_address(), ("--config", str(tmp_path / "muster.toml"))
    with served(tmp_path, *topics, *config, "--http", http) as (process, _):
        asked = f"http://{http}/readyz"
        assert urllib.request.urlopen(asked, timeout=PATIENCE_S).read() == b"active\n"
        (tmp_path / "topics.toml").unlink()
        end, said = time.monotonic() + PATIENCE_S, b""
        while b"topics" not in said and time.monotonic() < end:
            time.sleep(0.1)
            said = urllib.request.urlopen(asked, timeout=PATIENCE_S).read()
        assert re.fullmatch(rb"active\ntopics cannot be read since 20\S+Z\n", said)
        time.sleep(1)
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    (line,) = (tmp_path / "errors").read_text().splitlines()
    said = json.loads(line)
    assert said["message"].startswith("topics stay as they were, retrying their source: ")
    assert (said["level"], said["logger"]) == ("warning", "muster.coordinator")


def test_sighup_reloads_the_access_lists(tmp_path):
    acls, config = tmp_path / "acls.toml", tmp_path / "muster.toml"
    acls.write_text("super_users = ['User:ANONYMOUS']")
    config.write_text(f"[server]\nacls = '{acls}'\nreread_ms = 0\n")
    with served(tmp_path, "--config", str(config)) as (process, address), Client(address) as client:
        assert int(client.ask(Api.DELETE_GROUPS, 2, groups_names=["g"]).results[0].error_code) == 69
        acls.write_text("super_users = []")
        process.send_signal(signal.SIGHUP)
        end = time.monotonic() + PATIENCE_S
        while int(client.ask(Api.DELETE_GROUPS, 2, groups_names=["g"]).results[0].error_code) == 69:
            assert time.monotonic() < end
            time.sleep(0.05)
        process.terminate()
        assert process.wait(PATIENCE_S) == 0


def test_metrics_have_no_series_of_when_each_began(tmp_path):
    http = free_address()
    with served(tmp_path, "--http", http):
        page = urllib.request.urlopen(f"http://{http}/metrics", timeout=PATIENCE_S).read()
    assert b"wire_connections" in page
    assert b"_created" not in page


SECRET = {"sasl.password": "x"}


@pytest.mark.parametrize(
    "settings",
    [
        Config(topics=TopicsConfig(kafka=SECRET)),
        Config(weights=WeightsConfig(kafka=SECRET)),
        Config(watch=WatchConfig(kafka=SECRET)),
    ],
)
def test_settings_with_a_password_that_everybody_can_read_are_warned_of(caplog, settings):
    with tempfile.NamedTemporaryFile(dir="/tmp") as file:
        path = Path(file.name)
        path.chmod(0o644)
        service.warn_of_readers(path, Config())
        assert not caplog.text
        service.warn_of_readers(path, settings)
        assert (
            f"--config {path} has secrets that every user of this machine can read" in caplog.text
        )


@long
def test_a_fenced_server_says_so_and_exits(tmp_path):
    settings = tmp_path / "muster.toml"
    settings.write_text("[lease]\nrenew_ms = 200")
    store = ("--store", str(tmp_path / "store"), "--config", str(settings))
    second = tmp_path / "second"
    second.mkdir()
    with (
        umask(0o022),
        served(tmp_path, *store) as (zombie, _),
        served(second, *store, "--takeover", "force"),
    ):
        assert zombie.wait(PATIENCE_S) == 1
        assert wrong(tmp_path / "store", 0o700) == {}
    assert "restart to stand by" in (tmp_path / "errors").read_text()


def test_a_terminal_is_shown_what_it_waits_for(tmp_path, terminal, monkeypatch):
    config = Config(server=ServerConfig(listen="127.0.0.1:0"))
    said, store = [], str(tmp_path / "store")

    def served(line):
        said.append((line, progress._display))
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(serve.typer, "echo", served)
    switch, thresholds = sys.getswitchinterval(), gc.get_threshold()
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    holder = Coordinator.open(store)
    with terminal() as seen, ThreadPoolExecutor(1) as pool:

        def watch():
            try:
                seen("opening the store")
                seen("waiting until no other coordinator has the store")
            finally:
                holder.close()

        watched = pool.submit(watch)
        try:
            serve._serve(config, store, None, "wait")
        finally:
            sys.setswitchinterval(switch)
            gc.unfreeze()
            gc.set_threshold(*thresholds)
            for number, handler in handlers.items():
                signal.signal(number, handler)
        watched.result()
    ((line, display),) = said
    assert (line.startswith("muster serves groups at"), display) == (True, None)


@long
def test_a_stand_by_is_stopped_while_it_waits(tmp_path):
    store = ("--store", str(tmp_path / "store"))
    with served(tmp_path, *store):
        command = [sys.executable, "-m", "coordinator", "serve", "--listen", "127.0.0.1:0", *store]
        with (tmp_path / "log").open("wb") as log:
            waiting = start([*command, "--http", "127.0.0.1:0"], stdout=log, stderr=log)
        time.sleep(3)
        waiting.send_signal(signal.SIGTERM)
        assert waiting.wait(PATIENCE_S) in {0, -signal.SIGTERM}  # the latter while it starts
        said = (tmp_path / "log").read_text()
        assert not said or said.endswith("stopped by SIGTERM before it had the store\n")


def test_a_generated_user_can_log_in(muster_here, tmp_path):
    done = muster_here("user", 'an "odd" näme', stdin="secret\n")
    assert done.returncode == 0, done.stderr
    assert b"secret" not in done.stdout
    file = tmp_path / "users.toml"
    file.write_text("[users]\n" + done.stdout.decode())
    users = Users.read(str(file))
    assert users.check_password('an "odd" näme', "secret")
    assert not users.check_password('an "odd" näme', "Secret")
    one = muster_here("user", "ann", "--mechanism", "SCRAM-SHA-512", stdin="secret")
    (verifier,) = tomllib.loads(one.stdout.decode())["ann"]
    assert verifier.startswith("SCRAM-SHA-512$")


@pytest.mark.parametrize(
    ("words", "stdin", "message"),
    [
        (["ann"], "", "the password is empty: give one"),
        (["ann", "--mechanism", "PLAIN"], "x", "--mechanism is 'PLAIN': give SCRAM-SHA-256 or"),
        (("ann", "--iterations", "100"), "secret\n", "is 100: give 4096 to 1000000"),
    ],
)
def test_an_empty_password_is_refused(muster_here, words, stdin, message):
    done = muster_here("user", *words, stdin=stdin)
    assert (done.returncode, done.stdout) == (2, b"")
    assert message in done.stderr.decode()
