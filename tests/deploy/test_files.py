"""The image and the unit, as far as they can be judged where neither runs."""

from __future__ import annotations

import configparser
import re
import shlex

import pytest

from coordinator.cli.serve import serve
from tests.conftest import ROOT

DEPLOY = ROOT / "deploy"


@pytest.fixture(scope="module")
def steps():
    """Return the instructions of the Dockerfile, each in one line."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(None, 1)) for line in lines]


def test_the_image_is_small_and_runs_as_no_one_special(steps):
    kinds = [kind for kind, _ in steps]
    words = dict(steps)
    assert "ADD" not in kinds
    bases = [rest for kind, rest in steps if kind == "FROM"]
    assert bases[1:] == ["scratch"], "what builds it stays out of it"
    assert re.match(r"\S+:\d\S+", bases[0]), "a base without a version"
    last = len(kinds) - 1 - kinds[::-1].index("FROM")
    after = [kind for kind, _ in steps[last:]]
    assert int(words["USER"]) > 0
    assert "RUN" not in after, "there is no shell"
    assert after.index("USER") < after.index("ENTRYPOINT")
    for name in ("ENTRYPOINT", "CMD"):
        assert words[name].startswith("["), f"{name} in a shell gets no signals"
    assert words["HEALTHCHECK"].rpartition("CMD ")[2].startswith("["), "there is no shell"
    assert {"HEALTHCHECK", "EXPOSE", "VOLUME", "STOPSIGNAL"} <= set(kinds)
    for kind, rest in steps:
        if kind == "RUN" and "pip install" in rest:
            assert "--no-cache-dir" in rest
            assert "--require-hashes" in rest or "--no-deps" in rest


def test_what_the_image_copies_is_there_and_nothing_secret_is_sent(steps):
    allowed = [
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    ]
    assert (ROOT / ".dockerignore").read_text().startswith("*\n")
    for path in allowed:
        assert (ROOT / path).exists(), path
    for kind, rest in steps:
        if kind == "COPY" and "--from" not in rest:
            for source in rest.split()[:-1]:
                assert source == "." or source in allowed, source


def test_the_image_and_the_unit_start_a_command_that_there_is(steps):
    known = {name for one in serve.__annotations__.values() for name in options_of(one)}
    command = [word.strip(' "') for word in dict(steps)["CMD"].strip("[]").split(",")]
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(DEPLOY / "muster.service")
    started = shlex.split(unit["Service"]["ExecStart"])
    assert started[0] == "/opt/muster/bin/muster"
    for words in (command, started[1:]):
        assert words[0] == "serve"
        for word in words:
            assert not word.startswith("--") or word in known, word


def options_of(annotation):
    return [*re.findall(r"--[a-z][a-z-]+", str(annotation)), "--store", "--config", "--http"]


def test_the_unit_restarts_and_may_do_little():
    text = (DEPLOY / "muster.service").read_text()
    for line in ("Restart=always", "NoNewPrivileges=yes", "ProtectSystem=strict", "User=muster"):
        assert line in text.splitlines(), line
    (stop,) = re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
    assert int(stop) >= 60, "a bucket that does not answer takes two requests' time-outs"
