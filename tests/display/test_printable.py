"""What anybody may name reaches the operator's terminal as text, never as a command to it."""

from __future__ import annotations

import io
import json
import logging
import sys

import pytest
from typer import Typer
from typer.testing import CliRunner

from coordinator import Coordinator
from coordinator.cli import inspect
from coordinator.cli.main import run_guarded
from coordinator.config import Config
from coordinator.config.kafka import kafka_config
from coordinator.display.printable import (
    JsonFormatter,
    VisibleFormatter,
    as_json,
    visible,
    visible_values,
)
from spark_jobs.cli import assign

GROUP = "g\x1b]0;owned\x07"
MEMBER = "m\x1b[2J\x9b31m"
CLIENT = "\u202eevil\u2066"
INSTANCE = "i\nnext line\r\x08"
HOST = "\x7fhost\u200b"
COMMANDS = ["groups", "describe", "history", "explain"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    config = Config(kafka=kafka_config({"group.consumer.assignment.interval.ms": 0}))
    with Coordinator.open(folder, topics={"a": 4}, config=config) as coordinator:
        for member in (MEMBER, "other"):
            coordinator.consumer_group_heartbeat(
                group_id=GROUP, member_id=member, member_epoch=0, rebalance_timeout_ms=1000,
                subscribed_topic_names=["a"], topic_partitions={}, client_id=CLIENT,
                client_host=HOST, instance_id=INSTANCE + member,
            )  # fmt: skip
        coordinator.offset_commit(
            group_id=GROUP, member_id=MEMBER, member_epoch=2, topics={"a": {0: (1, "\x1b[5m")}}
        )
    return folder


def run(name, *words):
    app = Typer()
    app.command()(getattr(inspect, name))
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return done.output


def words_of(name, store):
    return [*([] if name == "groups" else [GROUP]), "--store", str(store)]


def assert_harmless(text):
    assert [c for c in text if not c.isprintable() and c != "\n"] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_terminal_is_shown_escapes(store, name, monkeypatch):
    monkeypatch.setattr(inspect, "wants_json", lambda asked: asked)
    monkeypatch.setenv("COLUMNS", "300")
    said = run(name, *words_of(name, store))
    assert_harmless(said)
    if name != "groups":
        assert "m\\x1b[2J\\x9b31m" in said
        assert "\\u202eevil\\u2066" in said
        assert "next line\\r\\x08" in said
    if name in {"groups", "describe"}:
        assert "g\\x1b]0;owned\\x07" in said


@pytest.mark.parametrize("name", COMMANDS)
def test_json_escapes_control_characters(store, name):
    said = run(name, *words_of(name, store), "--json")
    assert_harmless(said)
    rows = [json.loads(line) for line in said.splitlines()]
    texts = json.dumps(rows, ensure_ascii=False)
    ids = {"groups": GROUP}.get(name, MEMBER)
    assert json.dumps(ids, ensure_ascii=False)[1:-1] in texts


def test_an_error_is_one_harmless_line(store, monkeypatch, capsys):
    app = Typer()
    app.command()(inspect.describe)
    monkeypatch.setattr(sys, "argv", ["muster", "no\x1b[2J\nsuch", "--store", str(store)])
    with pytest.raises(SystemExit):
        run_guarded(app)
    said = capsys.readouterr().err
    assert_harmless(said)
    assert said.count("\n") == 1
    assert "no\\x1b[2J" in said or "no\\\\x1b[2J" in said


class Tty(io.StringIO):
    """Standard output as a terminal has it."""

    def isatty(self):
        return True


def test_a_report_shows_escapes_brackets_and_colons(tmp_path, monkeypatch):
    topic, one, two = "a\x1b[1m", "m\x1b[2J", "[bold]:warning:"
    spec = {
        "id": "[/red]\x1b[2J",
        "topics": {topic: 2},
        "members": {
            one: {"subscribed": [topic], "owned": {topic: [0, 1]}},
            two: {"subscribed": [topic]},
        },
    }
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(spec))
    app = Typer()
    app.command()(assign.assign)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "argv", ["muster", str(file), "--report"])
    monkeypatch.setattr(sys, "stdout", said := Tty())
    with pytest.raises(SystemExit) as ended:
        run_guarded(app)
    assert not ended.value.code
    shown = said.getvalue()
    assert_harmless(shown)
    for text in ("[/red]\\x1b[2J", "a\\x1b[1m[", "m\\x1b[2J", "[bold]:warning:"):
        assert text in shown


def test_a_log_line_stays_one_line():
    formatter = VisibleFormatter("%(levelname)s %(message)s")
    record = logging.LogRecord("x", logging.WARNING, "", 0, "of %s", ("a\x1b[2J\nERROR b",), None)
    assert formatter.format(record) == "WARNING of a\\x1b[2J\\nERROR b"
    error = ValueError("\x1b[2J")
    record.exc_info = (ValueError, error, None)
    lines = formatter.format(record).splitlines()
    assert lines[-1] == "ValueError: \\x1b[2J"
    assert len(lines) == 2


def test_a_line_of_json_has_one_event_with_its_error():
    record = logging.LogRecord("x", logging.WARNING, "", 0, "of %s", ("a\x1b[2J\nERROR b",), None)
    record.created = 1_772_366_400.25
    line = JsonFormatter().format(record)
    assert line.isprintable()
    assert json.loads(line) == {
        "time": "2026-03-01T12:00:00.250Z", "level": "warning", "logger": "x",
        "message": "of a\x1b[2J\nERROR b",
    }  # fmt: skip
    record.exc_info = (ValueError, ValueError("\x1b[2J"), None)
    line = JsonFormatter().format(record)
    assert line.isprintable()
    assert json.loads(line)["error"] == "ValueError: \x1b[2J"


def test_printable_text_is_unchanged():
    for text in ("", "group-1", "Gruppe Ä", "群组", "😀", "[red]", "a b"):
        assert visible(text) == text
    assert visible_values({"\x1b": ["\n", 1, None, {"a": "\ud800"}]}) == {
        "\\x1b": ["\\n", 1, None, {"a": "\\ud800"}]
    }
    for value in ("\u202e", "\U000e0041", "\ud800", "\x9b", "\u2028", 'a"\\\n'):
        line = as_json({"id": value})
        assert line.isprintable()
        assert json.loads(line) == {"id": value}


def test_bytes_of_the_log_are_base64_in_json():
    assert as_json({"raw": [b"\x00\xff", bytearray(b"a")]}) == '{"raw": ["AP8=", "YQ=="]}'
    with pytest.raises(TypeError, match="is not a JSON value"):
        as_json({"raw": object()})
