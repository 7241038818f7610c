"""An assignor declares what it can: its options that settings give, and whether it knows loads."""

import pytest

from assignors import assignor_names, get_assignor
from assignors.registry import ENTRY_POINTS, knows_loads, options_of
from coordinator.config import Config, PlanConfig
from coordinator.core.targets.assignor_options import AssignorOptions
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
CONFIG = Config(plan=PlanConfig(exact_edges=9))


def arguments(name, settings=SETTINGS):
    return AssignorOptions.of_group(name, settings, CONFIG).arguments()


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("range", {}),
        ("uniform", {"exact_edges": 9}),
        ("sticky", {"max_moves": 3, "imbalance": "5%", "exact_edges": 9}),
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
