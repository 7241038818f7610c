"""Packages that are installed beside Muster, as far as entry points can tell."""

ALONE = """
from assignors.uniform import UniformAssignor

class Made(UniformAssignor):
    spark_twin = None
"""
"""An assignor that does not run on Spark."""


def install(folder, monkeypatch, group, name, source):
    """Have a package in the folder, and on the path: its class `Made` is the entry point `name`."""
    module = f"made_for_{name}"
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}:Made\n")
    monkeypatch.syspath_prepend(folder)
