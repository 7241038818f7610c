"""Connections to the pages that ask nothing: who only opens them takes nothing from anyone."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from coordinator.config import Config, WebConfig
from coordinator.web import server
from coordinator.web.server import WebServer
from tests.support.stories import billing, stored
from tests.web.test_server import get

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return stored(billing().batches, tmp_path_factory.mktemp("store"))


def connect(pages):
    return socket.create_connection(("127.0.0.1", urlsplit(pages.url).port), 10)


def read_to_the_end(connection):
    """Return what the server sent until it closed the connection."""
    found = b""
    while piece := connection.recv(4096):
        found += piece
    return found


@pytest.mark.parametrize(
    ("sent", "drops", "answers"),
    [
        (b"", b"", 0),
        (HEAD, b"X: y\r\n", 0),
        (HEAD + b"\r\n", b"", 1),
        (HEAD + b"\r\n", b"G", 1),
        (HEAD + b"Content-Length: 9999\r\n\r\n", b"x", 1),
    ],
    ids=["silent", "slow head", "after an answer", "slow second head", "slow body"],
)
def test_a_connection_without_a_request_ends(store, sent, drops, answers):
    """What it sends meanwhile, byte by byte, changes nothing."""
    began = time.monotonic()
    with WebServer(store, listen="127.0.0.1:0", request_s=0.3) as pages, connect(pages) as client:
        client.sendall(sent)
        client.settimeout(0.05)
        found = b""
        while time.monotonic() - began < 10:
            try:
                if drops:
                    client.sendall(drops)
                piece = client.recv(4096)
                if not piece:
                    break
                found += piece
            except TimeoutError:
                continue
            except OSError:  # it was closed while something was sent
                break
        else:
            pytest.fail("it is still open")
    assert found.count(b"HTTP/1.1 200") == answers


def test_silent_connections_keep_no_browser_out(store, caplog):
    config = Config(web=WebConfig(connections_max=8))
    with WebServer(store, config, "127.0.0.1:0") as pages, ExitStack() as closing:
        silent = [closing.enter_context(connect(pages)) for _ in range(40)]
        assert get(f"{pages.url}healthz") == (200, "ok\n")
        assert all(read_to_the_end(one) == b"" for one in silent[:30])
        silent[-1].sendall(HEAD + b"Connection: close\r\n\r\n")
        assert read_to_the_end(silent[-1]).startswith(b"HTTP/1.1 200")
        silent[-2].sendall(b"\x16\x03\x01 no HTTP\r\n\r\n")
        assert read_to_the_end(silent[-2]).startswith(b"HTTP/1.1 400")
    assert caplog.messages == []  # anyone could fill the log


def test_pages_leave_most_file_descriptors_to_the_coordinator(store, monkeypatch, caplog):
    monkeypatch.setattr(server, "raise_files_limit", lambda: 40)
    with WebServer(store, listen="127.0.0.1:0") as pages, ExitStack() as closing:
        assert caplog.messages == [
            "web.connections_max is 1000, but this process may have 40 files: 10 connections"
        ]
        silent = [closing.enter_context(connect(pages)) for _ in range(20)]
        assert read_to_the_end(silent[0]) == b""
        assert get(f"{pages.url}healthz")[0] == 200
