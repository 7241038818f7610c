"""Open pages: what they are sent, and what a slow one costs the others."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from itertools import count
from urllib.parse import urlsplit

import pytest

from coordinator import Coordinator
from coordinator.config import ConfigError
from coordinator.web.errors import NoGroupError
from coordinator.web.live import Hub, PageEvents, Times, format_events
from coordinator.web.store_reader import StoreReader
from tests.conftest import ROOT
from tests.support.processes import running
from tests.support.stories import stored
from tests.web.browsing import browse, five_groups


class Source:
    """A view whose text is what it was set to; it counts how often it is made."""

    def __init__(self):
        self.text, self.made, self.fails = b"0", 0, None

    async def make(self):
        self.made += 1
        if self.fails:
            raise self.fails
        return {"now": self.text, "same": b"x"}, 0.0


async def until(true, seconds=60.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def streamed(hub, source, may_see=lambda: True, key="k"):
    """Run a stream whose browser takes what it is sent into a list, unless it is stalled."""
    sent, going, left = [], asyncio.Event(), asyncio.Event()
    going.set()

    async def send(message):
        await going.wait()
        sent.append(message.get("body", b""))

    async def receive():
        await left.wait()
        return {"type": "http.disconnect"}

    stream = PageEvents(hub, key, source.make, may_see, [])
    return sent, going, left, asyncio.create_task(stream({}, receive, send))


def test_a_view_is_made_once_for_all_its_pages_and_only_while_one_is_open():
    async def main():
        source, changed = Source(), [False]
        hub = Hub(lambda: changed[0], 100)
        pages = [streamed(hub, source) for _ in range(20)]
        await until(lambda: all(b"data: 0" in b"".join(page[0]) for page in pages))
        assert source.made == 1
        source.text, changed[0] = b"1", True
        await until(lambda: all(b"data: 1" in b"".join(page[0]) for page in pages))
        assert source.made == 2
        assert b"".join(pages[0][0]).count(b"data: same\n") == 1, "what stays is sent once"
        late = streamed(hub, source)
        await until(lambda: b"data: 1" in b"".join(late[0]))
        for page in [*pages, late]:
            page[2].set()
        await asyncio.gather(*(page[3] for page in [*pages, late]))
        made = source.made
        await asyncio.sleep(0.6)
        assert (hub.pages, hub._channels, source.made) == (0, {}, made)

    asyncio.run(main())


def test_a_change_that_another_page_has_read_is_shown(tmp_path):
    """Loading a page between a commit and the next look for news must not hide it."""

    async def main():
        store = tmp_path / "store"
        with Coordinator.open(store, topics={"clicks": 4}) as coordinator:

            def join(number):
                coordinator.consumer_group_heartbeat(
                    group_id="g", member_id=f"m{number}", member_epoch=0,
                    subscribed_topic_names=["clicks"], topic_partitions={},
                    rebalance_timeout_ms=60_000,
                )  # fmt: skip
                return b"position %d\n" % reader.newest().reading.position

            async def make():
                return {"now": b"position %d" % reader.newest().reading.position}, 0.0

            reader, source = StoreReader(store), Source()
            source.make = make
            page = streamed(Hub(reader.count_changes, 100, Times(period_s=0.01)), source)
            for number in range(4):
                shown = join(number)
                await until(lambda shown=shown: shown in b"".join(page[0]))
            page[2].set()
            await page[3]

    asyncio.run(main())


def test_a_browser_that_does_not_read_costs_one_message():
    """It gets the newest when it reads again; the others wait for nothing."""

    async def main():
        source = Source()
        hub = Hub(count().__next__, 100)
        slow, quick = streamed(hub, source), streamed(hub, source)
        await until(lambda: b"data: 0" in b"".join(slow[0]))
        slow[1].clear()
        for text in (b"1", b"2", b"3"):
            source.text = text
            await until(lambda text=text: b"data: " + text in b"".join(quick[0]))
        slow[1].set()
        await until(lambda: b"data: 3" in b"".join(slow[0]))
        assert b"data: 2" not in b"".join(slow[0])
        for page in (slow, quick):
            page[2].set()
        await asyncio.gather(slow[3], quick[3])

    asyncio.run(main())


def test_a_stream_ends_with_the_group_the_right_and_the_server():
    async def main():
        source, may = Source(), [True]
        hub = Hub(count().__next__, 100)
        page = streamed(hub, source, lambda: may[0])
        await until(lambda: b"data: 0" in b"".join(page[0]))
        may[0], source.text = False, b"secret"
        await asyncio.wait_for(page[3], 60)
        gone = streamed(hub, source)
        source.fails = NoGroupError("billing")
        await asyncio.wait_for(gone[3], 60)
        assert b"event: gone\ndata: There is no group 'billing'" in b"".join(gone[0])
        source.fails = None
        last = streamed(hub, source)
        await until(lambda: b"data: secret" in b"".join(last[0]))
        hub.end()
        await asyncio.wait_for(last[3], 60)
        assert hub.is_full

    asyncio.run(main())


def test_an_open_page_says_that_the_store_cannot_be_read():
    """And that it can again; whatever fails: the look for news, or the reading of it."""

    async def main():
        source, unreachable = Source(), [None]

        def look():
            if unreachable[0]:
                raise unreachable[0]
            return 0

        hub = Hub(look, 100, Times(age_s=0.05, retry_s=0.05))
        page = streamed(hub, source)
        received = partial(b"".join, page[0])
        await until(lambda: b"data: 0" in received())
        assert b"trouble" not in received()
        unreachable[0] = source.fails = PermissionError("refused\u202e")
        why = b"event: trouble\ndata: The store cannot be read: refused\\u202e\n\n"
        await until(lambda: why in received())
        late = streamed(hub, source)
        await until(lambda: why in b"".join(late[0]))
        unreachable[0], source.fails, source.text = None, None, b"9"
        await until(
            lambda: b"data: 9" in received() and b"event: trouble\ndata: \n\n" in received()
        )
        for one in (page, late):
            one[2].set()
        await asyncio.gather(page[3], late[3])

    asyncio.run(main())


def test_a_page_does_not_grow_old_and_hears_from_the_server():
    """What it counts of the last hour changes without a change of the log."""

    async def main():
        source = Source()
        hub = Hub(lambda: 0, 100, Times(0.01, 0.05, 0.05))
        page = streamed(hub, source)
        await until(lambda: b"data: 0" in b"".join(page[0]))
        source.text = b"an hour later"
        await until(lambda: b"an hour later" in b"".join(page[0]))
        await until(lambda: b"event: here\ndata:\n\n" in b"".join(page[0]))
        page[2].set()
        await page[3]

    asyncio.run(main())


def test_events_have_a_line_of_data_for_each_line():
    assert format_events({"now": b"a\n\nb"}) == (
        b"event: part\ndata: now\ndata: a\ndata: \ndata: b\n\n"
    )


def test_odd_streams_are_refused(tmp_path):
    client = browse(stored(five_groups(), tmp_path))
    for path, code in (
        ("/live", 400), ("/live?view=x", 400), ("/live?view=group", 400),
        ("/live?view=group&id=nobody", 404), ("/live?view=groups&sort=x", 400),
    ):  # fmt: skip
        assert client.get(path).status_code == code
    head = client.head("/live?view=groups")
    assert (head.status_code, head.headers["content-type"][:17]) == (200, "text/event-stream")


@contextlib.contextmanager
def following(url, path):
    """Yield a function that reads a stream until it has a text."""
    at = urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname, at.port, timeout=30)
    connection.request("GET", path)
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")

    def read_until(text):
        while text.encode() not in (line := answer.readline()):
            assert line, "the stream has ended"

    try:
        yield read_until
    finally:
        connection.close()


def beat(coordinator, member, epoch=0, owned=None):
    return coordinator.consumer_group_heartbeat(
        group_id="billing", member_id=member, member_epoch=epoch, rebalance_timeout_ms=60_000,
        subscribed_topic_names=["clicks"], topic_partitions=owned or {},
    )  # fmt: skip


def test_a_member_joins_and_open_pages_say_so(tmp_path):
    with (
        Coordinator.open(tmp_path / "store", topics={"clicks": 4}) as coordinator,
        coordinator.serve_web("127.0.0.1:0") as pages,
    ):
        first = beat(coordinator, "m1")
        with (
            socket.create_connection(urlsplit(pages.url).netloc.split(":")) as stalled,
            following(pages.url, "/live?view=group&id=billing") as group,
            following(pages.url, "/live?view=groups") as groups,
        ):
            stalled.sendall(b"GET /live?view=groups HTTP/1.1\r\nHost: localhost\r\n\r\n")
            group(">m1<")
            groups(">billing<")
            beat(coordinator, "m2")
            beat(coordinator, "m1", first.member_epoch, {"clicks": [0, 1, 2, 3]})
            group(">m2<")
            groups('<td class="n">3')


def test_without_a_store_or_the_extra_nothing_is_shown(tmp_path, monkeypatch):
    with (
        Coordinator.open(None, topics={"clicks": 4}) as coordinator,
        pytest.raises(ConfigError, match="open the coordinator with one"),
    ):
        coordinator.serve_web("127.0.0.1:0")
    with Coordinator.open(tmp_path / "store", topics={"clicks": 4}) as coordinator:
        with pytest.raises(ConfigError, match="configure a login"):
            coordinator.serve_web("0.0.0.0:0")
        monkeypatch.delitem(sys.modules, "coordinator.web.server", raising=False)
        monkeypatch.setitem(sys.modules, "uvicorn", None)
        with pytest.raises(ConfigError, match=r"pip install 'muster\[web\]'"):
            coordinator.serve_web("127.0.0.1:0")


def test_serve_shows_its_groups(tmp_path, muster_here):
    words = ["serve", "--listen", "127.0.0.1:0", "--topic", "clicks=4"]
    done = muster_here(*words, "--web", "127.0.0.1:0")
    assert (done.returncode, b"give --store too" in done.stderr) == (2, True)
    done = muster_here(*words, "--web", "0.0.0.0:1", "--store", str(tmp_path / "s"))
    assert (done.returncode, b"configure a login" in done.stderr) == (2, True)
    command = [sys.executable, "-m", "coordinator", *words, "--store", str(tmp_path / "s")]
    with running(
        [*command, "--web", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        url = process.stdout.readline().split()[-1]
        with following(url, "/live?view=groups") as groups:
            groups("There are no groups yet.")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
