"""The server of the pages in a thread, and `muster web`."""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

from assignors import SpecError
from coordinator import Coordinator
from coordinator.__main__ import has_jemalloc
from coordinator.__main__ import main as run_command
from coordinator.cli import main
from coordinator.config import Config, ServerConfig, WebConfig
from coordinator.errors.status import Status
from coordinator.extras import EXTRAS
from coordinator.web.server import WebServer
from coordinator.web.store_reader import StoreReader
from tests.conftest import ROOT
from tests.support.members import processor_of
from tests.support.processes import running
from tests.support.stories import stored
from tests.web.browsing import five_groups
from tests.wire.test_access import certificates, tls_of

__all__ = ["certificates"]
MUSTER = [sys.executable, "-m", "coordinator"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return stored(five_groups(), tmp_path_factory.mktemp("store"))


def get(url, tls=None):
    with urllib.request.urlopen(url, timeout=60, context=tls) as answer:
        return answer.status, answer.read().decode()


def test_the_server_serves_until_it_is_closed(store):
    with WebServer(store, listen="127.0.0.1:0") as pages:
        code, text = get(f"{pages.url}group?id=billing")
        assert (code, "billing" in text) == (200, True)
        with pytest.raises(OSError, match="cannot listen"):
            WebServer(store, listen=pages.url.removeprefix("http://").rstrip("/"))
    with pytest.raises(urllib.error.URLError):
        get(pages.url)
    pages.close()


def test_without_a_store_nothing_listens(tmp_path):
    with pytest.raises(SpecError, match="is not the store of a coordinator"):
        WebServer(tmp_path, listen="127.0.0.1:0")


def test_pages_over_tls(store, certificates):
    trusting = ssl.create_default_context(cafile=certificates / "ca.pem")
    config = Config(server=ServerConfig(**tls_of(certificates)), web=WebConfig(tls=True))
    with WebServer(store, config, "127.0.0.1:0") as pages:
        assert pages.url.startswith("https://")
        assert get(f"{pages.url}healthz", trusting) == (200, "ok\n")


def test_the_command_shows_a_store_until_it_is_stopped(store):
    words = [*MUSTER, "web", "--store", store, "--listen", "127.0.0.1:0"]
    with running(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        line = process.stdout.readline()
        assert "billing" in get(re.search(r"http://\S+", line)[0])[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.skipif(not has_jemalloc(), reason="jemalloc is chosen on Linux for x86-64 only")
@pytest.mark.parametrize(
    ("command", "named", "chosen"),
    [("web", None, "jemalloc"), ("serve", None, "jemalloc"), ("web", "system", "system")],
)
def test_arrow_reuses_memory_unless_the_environment_names_a_pool(
    monkeypatch, command, named, chosen
):
    monkeypatch.setattr(sys, "argv", ["muster", command, "--help"])
    monkeypatch.setattr(main, "main", lambda: None)
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", named or "")
    if named is None:
        monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL")
    run_command()
    assert os.environ["ARROW_DEFAULT_MEMORY_POOL"] == chosen
    words = [
        sys.executable,
        "-c",
        "import pyarrow; print(pyarrow.default_memory_pool().backend_name)",
    ]
    assert subprocess.check_output(words, text=True, stderr=subprocess.STDOUT).split() == [chosen]


def test_bad_input_of_the_command(muster_here, tmp_path, store, monkeypatch):
    for words, why in (
        (["--store", tmp_path / "none"], "is not the store of a coordinator"),
        (["--store", store, "--listen", "here"], "web.listen (--web, --listen) is 'here'"),
        (["--store", store, "--listen", "0.0.0.0:0"], "configure a login"),
    ):
        done = muster_here("web", *map(str, words))
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), done.stderr
        assert why in done.stderr.decode()
    monkeypatch.setitem(sys.modules, "starlette", None)
    done = muster_here("web", "--store", str(store))
    assert done.returncode == 2
    assert done.stderr.decode() == (
        "muster: muster web needs starlette, not installed: pip install 'muster[web]'\n"
    )


def test_only_the_pages_import_what_they_need():
    """Who has not installed the extra has all the rest."""
    code = (
        "import sys, coordinator, coordinator.cli.web, coordinator.cli.serve, spark_jobs; "
        "from coordinator.runtime.coordinator import Coordinator; "
        f"print(*(name for name in {EXTRAS['web']} if name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == "\n"


def test_the_extra_has_what_the_pages_need():
    text = Path(ROOT / "pyproject.toml").read_text()
    extra = re.search(r"^web = \[(.*)\]$", text, re.MULTILINE)[1]
    assert sorted(re.findall(r'"([a-z0-9]+)>=', extra)) == sorted(EXTRAS["web"])


@pytest.mark.parametrize("ended", ["fenced", "broken"])
def test_the_pages_of_a_coordinator_that_lost_its_store_say_who_has_it(tmp_path, ended):
    """Its viewers should look at its successor's."""
    first = Coordinator.open(tmp_path, topics={"t": 1})
    with first, first.serve_web("127.0.0.1:0") as pages:
        assert get(pages.url)[0] == 200
        with Coordinator.open(tmp_path, takeover="force", address="there:9092") as second:
            second.offset_commit(group_id="g", topics={"t": {0: 1}})
            while first.confirm_status() != "fenced":  # seen within `lease.check_ms`
                time.sleep(0.1)
            if ended == "broken":
                processor_of(first).status = Status.BROKEN
            for path in ("", "groups.json", "group?id=g", "live?view=groups"):
                with pytest.raises(urllib.error.HTTPError) as refused:
                    get(f"{pages.url}{path}")
                said = refused.value.read().decode()
                assert refused.value.code == 503
                assert {"fenced": "lost its place", "broken": "did not confirm"}[ended] in said
                assert "at there:9092 with coordinator epoch 2" in said


@pytest.mark.parametrize("error", [DeltaError("no entry"), pa.ArrowInvalid("no page")])
def test_what_is_cleaned_up_while_a_page_reads_it_is_no_fault_of_the_page(
    store, monkeypatch, error
):
    def fail(*_):
        raise error

    with WebServer(store, listen="127.0.0.1:0") as pages:
        monkeypatch.setattr(StoreReader, "newest", fail)
        with pytest.raises(urllib.error.HTTPError, match="503") as refused:
            get(pages.url)
        assert f"The store cannot be read: {error}" in refused.value.read().decode()


def test_no_page_shows_old_rows_while_the_store_does_not_answer(s3):
    """Neither the page that asks the store nor those after it, which do not ask it again."""
    place = s3.new_store()
    with (
        Coordinator.open(place, topics={"t": 1}) as coordinator,
        WebServer(place, listen="127.0.0.1:0") as pages,
    ):
        coordinator.offset_commit(group_id="o", topics={"t": {0: 1}})
        assert get(pages.url)[0] == 200
        s3.fault("503", times=9_999)
        time.sleep(2.5)  # until the store is asked again
        for _ in range(3):
            with pytest.raises(urllib.error.HTTPError, match="503") as refused:
                get(pages.url)
            assert "The store cannot be read" in refused.value.read().decode()
        s3.heal()
        until = time.monotonic() + 60
        while True:
            try:
                assert get(pages.url)[0] == 200
                break
            except urllib.error.HTTPError:
                assert time.monotonic() < until
                time.sleep(0.2)
