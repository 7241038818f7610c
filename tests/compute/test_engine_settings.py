"""An engine that is installed beside Muster gets the coordinator's settings."""

from coordinator.compute.engine import open_engine
from coordinator.config import Config

ENGINE = """
class Engine:
    def __init__(self, config=None):
        self.config = config
"""


def test_an_engine_by_entry_point_gets_the_settings(tmp_path, monkeypatch):
    (tmp_path / "engine_with_settings.py").write_text(ENGINE)
    info = tmp_path / "engine_with_settings-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: engine-with-settings\nVersion: 1\n"
    )
    (info / "entry_points.txt").write_text(
        "[muster.engines]\nwith_settings = engine_with_settings:Engine\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = Config()
    assert open_engine("with_settings", config).config is config
