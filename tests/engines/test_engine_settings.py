"""An engine that is installed beside Muster gets the coordinator's settings."""

from coordinator.config import Config
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
