"""An engine that is installed beside Muster gets the coordinator's settings."""

from dataclasses import replace

from coordinator.config import Config
from coordinator.engines.cost_model import GroupSize, fits_memory
from coordinator.engines.engine import ENTRY_POINTS, open_engine
from tests.support.installed import install

ENGINE = """
class Made:
    def __init__(self, config=None):
        self.config = config
"""


def test_an_engine_by_entry_point_gets_the_settings(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, ENTRY_POINTS, "with_settings", ENGINE)
    config = Config()
    assert open_engine("with_settings", config).config is config


def test_a_whole_target_takes_less_memory_than_records_of_all_members():
    config, size = Config(), GroupSize(1_000_000, 1, 50_000_000)
    assert fits_memory(config, size, whole=True)
    assert not fits_memory(config, size)
    assert not fits_memory(config, replace(size, ranges=2 * size.ranges), whole=True)
    cheap = replace(config, cost=replace(config.cost, local_bytes_range=10))
    assert fits_memory(cheap, replace(size, ranges=10 * size.ranges), whole=True)
