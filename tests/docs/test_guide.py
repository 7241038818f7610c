"""Every block of README and of the guide is run, here or by the test that is named, or says why not."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator import Coordinator
from coordinator.config import Config, parse
from coordinator.member.client_settings import read_access
from tests.clients.kafka_broker.mock import mock_kafka
from tests.conftest import ROOT
from tests.docs.test_readme import folder, run
from tests.support.processes import running

__all__ = ["folder"]

GUIDE = ROOT / "docs/guide"
PAGES = [ROOT / "README.md", ROOT / "docs/index.md", *sorted(GUIDE.glob("*.md"))]
BLOCK = re.compile(r"^(?:<!-- not run: (.+) -->\n)?```(.*)\n((?:(?!```).*\n)*)```$", re.MULTILINE)
SHOWN = {"text", "{toctree}"}
"""What no machine runs: the output of the block before, and directives of the site."""
RUN = {
    "README.md": {"python"},  # test_readme.py
    "docs/index.md": {"python"},
    "docs/guide/assign.md": {"python", "shell"},
    "docs/guide/embedding.md": {"python"},
    "docs/guide/gateway.md": {"toml"},
    "docs/guide/sql.md": {"python", "shell", "sql"},  # test_sql_page.py
    "docs/guide/kafka.md": {"python"},
    "docs/guide/operations.md": {"shell"},  # this file
    "docs/guide/security.md": {"toml"},
    "docs/guide/serving.md": {"python", "shell"},
    "docs/guide/stores.md": {"python"},
    "docs/guide/telemetry.md": {"toml"},  # tests/telemetry/test_page.py
    "docs/guide/web.md": {"python"},
    "docs/guide/workers.md": {"python"},
}
ADDRESS = "127.0.0.1:9092"


def blocks(page, language):
    text = (ROOT / page).read_text(encoding="utf-8")
    return [body for why, kind, body in BLOCK.findall(text) if kind == language and not why]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_run_or_says_why_not(page):
    name, text = str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")
    found = BLOCK.findall(text)
    assert len(found) * 2 == len(re.findall(r"^```", text, re.MULTILINE))
    kinds = {kind for why, kind, _ in found if not why} - SHOWN
    assert kinds == RUN.get(name, set())


def test_the_commands_for_operators_run(folder):
    run_shell("muster trace examples/billing.jsonl --log store > answers\n", folder)
    commands = blocks("docs/guide/operations.md", "shell")
    assert len(commands) >= 3
    for block in commands:
        run_shell(block, folder)
    assert (folder / "restored/log").exists()


def run_shell(block, folder):
    file = folder / "block.sh"
    file.write_text(f"set -e\n{block}")
    return run(file, folder)


def test_the_settings_of_the_page_on_security_are_settings():
    config, tokens, nodes, mode = (
        parse(block, "security.md") for block in blocks("docs/guide/security.md", "toml")
    )
    assert config.server.acls == "acls.toml"
    assert tokens.oauth.audience == "muster"
    assert read_access(nodes.nodes.kafka, "nodes.kafka")[1].client_id == "muster"
    assert mode.log.folder_mode == "0750"


def test_the_settings_of_the_page_on_gateways_are_settings():
    found = [parse(block, "gateway.md") for block in blocks("docs/guide/gateway.md", "toml")]
    assert found
    assert all(one != Config() for one in found)


def test_the_server_of_the_guide_serves(tmp_path):
    (block,) = blocks("docs/guide/serving.md", "shell")
    command = [word.replace(ADDRESS, "127.0.0.1:0") for word in block.split()]
    command[0] = str(Path(sys.executable).parent / command[0])
    with running(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as served:
        line = served.stdout.readline()
        assert "127.0.0.1:" in line, line
        served.send_signal(signal.SIGINT)
        assert served.wait(60) == 0
    assert (tmp_path / "store/log").exists()


def test_the_programs_of_the_guide_serve_and_join(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    serving, joining = blocks("docs/guide/serving.md", "python")
    exec(serving.replace(ADDRESS, "127.0.0.1:0"), {})
    assert "127.0.0.1:" in capsys.readouterr().out
    with Coordinator.open("store") as coordinator, coordinator.serve("127.0.0.1:0") as server:
        exec(joining.replace(ADDRESS, server.address), {})
    assert capsys.readouterr().out == f"{list(range(12))}\n"


def test_the_worker_of_the_guide_reads_from_kafka():
    """It begins where the group was left, and its commits are Muster's."""
    (block,) = blocks("docs/guide/kafka.md", "python")
    topics = {"clicks": 4}
    with (
        mock_kafka("clicks", {0: 7, 1: 3}) as kafka,
        Coordinator.open(None, topics=topics) as coordinator,
        coordinator.serve("127.0.0.1:0") as server,
    ):
        coordinator.offset_commit(group_id="billing", topics={"clicks": {0: 2}})
        block = block.replace("kafka:9092", kafka).replace(ADDRESS, server.address)
        read = []
        exec(
            block.replace("...  #", "read.append((*partition, message.offset()))  #"),
            {"read": read},
        )
        offsets = coordinator.offset_fetch(group_id="billing")["topics"]["clicks"]
    assert sorted(read) == [("clicks", 0, at) for at in range(2, 7)] + [
        ("clicks", 1, at) for at in range(3)
    ]
    assert {p: one["committed_offset"] for p, one in offsets.items()} == {0: 7, 1: 3}


def test_a_store_by_url_opens(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for block in blocks("docs/guide/stores.md", "python"):
        exec(block, {})
    assert capsys.readouterr().out == "active\n"
    assert not list(tmp_path.iterdir())


def test_the_pages_of_the_guide_are_served(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("docs/guide/web.md", "python")
    exec(block.replace("127.0.0.1:8080", "127.0.0.1:0"), {})
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")


def test_the_workers_of_the_guide_work(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for block in blocks("docs/guide/workers.md", "python"):
        exec(block, {})
    assert capsys.readouterr().out == "6 added, 0 removed\n"
    with Coordinator.open("store") as coordinator:
        topics = coordinator.offset_fetch(group_id="billing")["topics"]["clicks"]
    assert all(found["committed_offset"] > 0 for found in topics.values())
