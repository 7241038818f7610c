"""An assignor declares what it can: its options that settings give, and whether it knows loads."""

import json
import shutil
import subprocess
import sys

import pytest

from assignors import SpecError, assignor_names, get_assignor
from assignors.registry import (
    BUILT_IN,
    ENTRY_POINTS,
    find_keeper,
    knows_loads,
    options_of,
    require_spark_twin,
)
from coordinator.config import Config, PlanConfig
from coordinator.core.targets.assignor_options import AssignorOptions
from tests.conftest import ROOT
from tests.support.installed import install

CAREFUL = """
class Made:
    name = "careful"
    knows_loads = False
    options = ("max_moves", "imbalance")

    def __init__(self, max_moves=None, imbalance=0):
        self.max_moves, self.imbalance = max_moves, imbalance
"""
SETTINGS = {
    "consumer.assignor.max.moves": "3",
    "consumer.assignor.imbalance": "5%",
    "consumer.assignor.tolerance": "2%",
    "consumer.assignor.max.moved.weight": "7",
}
CONFIG = Config(plan=PlanConfig(exact_edges=9, long_ranges=8))

OF_PLAN = {"exact_edges": 9, "long_ranges": 8}


def arguments(name, settings=SETTINGS):
    return AssignorOptions.of_group(name, settings, CONFIG).arguments()


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("range", {}),
        ("uniform", OF_PLAN),
        ("sticky", {"max_moves": 3, "imbalance": "5%", **OF_PLAN}),
        ("weighted", {"max_moves": 3, "tolerance": "2%", "max_moved_weight": 7.0}),
        ("of another installation", {}),
    ],
)
def test_settings_give_the_options_that_an_assignor_declares(name, given):
    assert arguments(name) == given


def test_who_knows_loads():
    assert [name for name in assignor_names() if knows_loads(name)] == ["weighted"]
    assert knows_loads("of another installation")


def test_an_assignor_of_a_user_declares_alike(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, ENTRY_POINTS, "careful", CAREFUL)
    assert options_of("careful") == ("max_moves", "imbalance")
    assert not knows_loads("careful")
    made = AssignorOptions.of_group("careful", SETTINGS, CONFIG).make_assignor()
    assert (made.max_moves, made.imbalance) == (3, "5%")


def test_an_assignor_that_cannot_be_imported_fails_where_it_assigns_and_nowhere_else(
    tmp_path, monkeypatch
):
    """Groups are looked through for what their assignors know: one must not stop that for all."""
    install(tmp_path, monkeypatch, ENTRY_POINTS, "broken", "import no_such_module")
    assert knows_loads("broken")
    assert options_of("broken") == ()
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        get_assignor("broken")


def test_every_built_in_assignor_declares_its_twin_on_spark():
    for name in BUILT_IN:
        module, _, attribute = require_spark_twin(name).partition(":")
        file = ROOT / f"{module.replace('.', '/')}.py"
        assert f"\n{attribute} = " in file.read_text() or f"\ndef {attribute}(" in file.read_text()


def test_an_assignor_without_a_twin_is_refused_on_spark_by_name(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, ENTRY_POINTS, "untwinned", CAREFUL)
    with pytest.raises(SpecError, match="assignor 'untwinned' does not run on Spark: use --engine"):
        require_spark_twin("untwinned")


def test_owners_are_kept_by_an_assignor_that_declares_max_moves():
    assert (find_keeper(loads=False), find_keeper(loads=True)) == ("sticky", "weighted")


FIFTH = """
from dataclasses import dataclass
from typing import ClassVar

from assignors.uniform import UniformAssignor


@dataclass(frozen=True, slots=True)
class FifthAssignor(UniformAssignor):
    name: ClassVar[str] = "fifth"
    spark_twin: ClassVar[str] = "spark_jobs.assignors.uniform:TWIN"
"""
USE_FIFTH = """
import json

from coordinator import Coordinator
from coordinator.config import Config, EngineConfig
from coordinator.engines.engine import LocalEngine
from spark_jobs.jobs.spark_engine import SparkEngine
from tests.support.members import AT_ONCE, beat, join, wait_for


class Engine(LocalEngine):
    assignors = SparkEngine().assignors
    seen = []

    def compute(self, basis):
        self.seen.append(basis.options.assignor)
        return super().compute(basis)


engine = Engine()
config = Config(kafka=AT_ONCE, engine=EngineConfig(step_rows_max=0, engine="spark"))
with Coordinator.open(None, topics={"a": 4}, config=config, engine=engine) as coordinator:
    first = join(coordinator, "m1", server_assignor="fifth")
    own = wait_for(lambda: beat(coordinator, "m1", first.member_epoch).assignment)
    plan = coordinator.plan("g", add=1)
print(json.dumps([config.kafka.assignors, own, engine.seen, plan.plan.assignor]))
"""


def test_a_fifth_assignor_is_one_file_and_one_line(tmp_path):
    """Served, planned, and computed by the engine `spark`, which has it since it has a twin."""
    shutil.copytree(
        ROOT / "assignors", tmp_path / "assignors", ignore=shutil.ignore_patterns("__pycache__")
    )
    (tmp_path / "assignors/fifth.py").write_text(FIFTH)
    registry = tmp_path / "assignors/registry.py"
    line = "_KINDS: tuple[type[Assignor], ...] = (\n"
    known = registry.read_text()
    assert line in known
    named = "from assignors.fifth import FifthAssignor\n" + line + "    FifthAssignor,\n"
    registry.write_text(known.replace(line, named))
    done = subprocess.run(
        [sys.executable, "-c", USE_FIFTH],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    served, owned, computed, planned = json.loads(done.stdout)
    assert "fifth" in served
    assert owned == {"a": [0, 1, 2, 3]}
    assert computed[0] == planned == "fifth"
