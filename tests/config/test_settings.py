"""Settings: defaults in code and in conf/ are the same; wrong ones are refused by name."""

from __future__ import annotations

import pytest

from coordinator.cli.main import load_config
from coordinator.config import Config, ConfigError, parse
from tests.conftest import ROOT


def test_the_file_says_the_defaults():
    assert parse((ROOT / "conf/muster.toml").read_text(), "conf/muster.toml") == Config()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("plan = [", "x: not TOML"),
        ("[plann]\na = 1", "x: unknown section [plann]: the sections are plan, engine"),
        ("[plan]\nedges = 1", "x: unknown setting plan.edges: [plan] has exact_edges, long_ranges"),
        ("[plan]\nexact_edges = '1'", "x: Expected `int`, got `str`"),
        ("[plan]\nexact_edges = -1", "x: plan.exact_edges is -1: give 0 or more"),
        ("[engine]\nbackoff_ms = 0", "x: engine.backoff_ms is 0: give 1 or more"),
        ("[topics]\npoll_ms = 0", "x: topics.poll_ms is 0: give 1 or more"),
        ("[lease]\nrenew_ms = 0", "x: lease.renew_ms is 0: give 1 or more"),
        ("[log]\nmaintenance_ms = 0", "x: log.maintenance_ms is 0: give 1 or more"),
        ("plan = 1", "x: Expected `object`"),
        ("[engine]\nengine = 'abacus'", "x: Invalid enum value 'abacus'"),
    ],
)
def test_bad_settings_are_refused(text, message):
    with pytest.raises(ConfigError) as error:
        parse(text, "x")
    assert message in str(error.value)


def test_a_file_named_by_the_environment(tmp_path, monkeypatch):
    file = tmp_path / "own.toml"
    file.write_text("[report]\nmembers_shown = 4")
    monkeypatch.setenv("MUSTER_CONFIG", str(file))
    assert load_config(None).report.members_shown == 4
    with pytest.raises(ConfigError, match=r"nowhere\.toml cannot be read"):
        load_config(tmp_path / "nowhere.toml")
