"""Set-up says in one line what is missing, and leaves no half-filled cache."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_jobs import jars
from tests.conftest import ROOT

NOWHERE = "http://127.0.0.1:9"  # nothing listens here


@pytest.fixture
def setup(monkeypatch):
    """tools/setup.py as a module, run by a user who is not root."""
    spec = importlib.util.spec_from_file_location("muster_setup", ROOT / "tools/setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return module


def stopped(call, *words) -> str:
    with pytest.raises(SystemExit) as ended:
        call(*words)
    said = ended.value.code
    assert said.startswith("setup: ")
    assert "\n" not in said
    return said


def python_of(major, minor, executable=sys.executable):
    version = type("Version", (tuple,), {"minor": minor})((major, minor, 2))
    text = f"{major}.{minor}.2 (main) [GCC]"
    return SimpleNamespace(version_info=version, version=text, exit=sys.exit, executable=executable)


def test_python_is_too_old(setup, monkeypatch):
    monkeypatch.setattr(setup, "sys", python_of(3, 10))
    assert "Python 3.11 or later is needed, this is 3.10.2" in stopped(setup.main)


@pytest.mark.parametrize("java", [None, 'openjdk version "11.0.2"', 'java version "1.8.0_292"'])
@pytest.mark.parametrize("by", ["PATH", "JAVA_HOME"])
def test_java_is_missing_or_too_old(setup, monkeypatch, tmp_path, java, by):
    (tmp_path / "bin").mkdir()
    if java:
        (tmp_path / "bin/java").write_text(f"#!/bin/sh\necho '{java}' >&2\n")
        (tmp_path / "bin/java").chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv(by, str(tmp_path / "bin" if by == "PATH" else tmp_path))
    said = stopped(setup.java)
    assert "Java 17 or later is missing: sudo apt-get install openjdk-17-jre-headless" in said


def test_pythons_venv_is_missing(setup, monkeypatch, tmp_path):
    monkeypatch.setattr(setup, "sys", python_of(3, 12, executable="false"))
    said = stopped(setup.virtual_environment, tmp_path / "venv")
    assert "venv module is incomplete: sudo apt-get install python3.12-venv" in said


def test_delta_jars_are_missing(setup):
    """Our own commands say it in their own words."""
    ours = "import sys; sys.exit('muster: Delta jars are not cached: run once with a network')"
    said = stopped(setup.run, [sys.executable, "-c", ours], "Delta's jars")
    assert said == "setup: Delta jars are not cached: run once with a network"


def test_offline_with_nothing_cached(tmp_path):
    for name in ("requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    ours |= {"MUSTER_CACHE": str(tmp_path / "cache"), "PIP_CONFIG_FILE": os.devnull}
    ours |= {"PIP_INDEX_URL": NOWHERE, "PIP_RETRIES": "0", "https_proxy": NOWHERE}
    done = subprocess.run(
        [sys.executable, "tools/setup.py"],
        cwd=tmp_path, env=ours, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith(f"setup: Python packages are not in {tmp_path}/cache")
    assert done.stderr.endswith("run once with a network, or set MUSTER_CACHE to a filled cache\n")
    assert done.stderr.count("\n") == 1
    assert list((tmp_path / "cache/wheels").iterdir()) == []


@pytest.fixture
def wheels(setup, monkeypatch, tmp_path):
    """A cache of two wheels, one of which was built here; returns its folder and its fetches."""
    contents = {"fetched-1.whl": b"fetched", "built-1.whl": b"built"}
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"fetched==1 --hash=sha256:{hashlib.sha256(b'fetched').hexdigest()}\n")
    monkeypatch.setattr(setup, "cache", lambda: tmp_path / "cache")
    fetches, asked = [], []

    def pip(*words, **_how):
        asked.append(words)
        folder = Path(words[words.index("--wheel-dir") + 1])
        folder.mkdir()
        for name, content in contents.items():
            (folder / name).write_bytes(content)
        fetches.append(folder)

    monkeypatch.setattr(setup, "pip", pip)
    return SimpleNamespace(
        folder=setup.wheels(lock)[0].parent, lock=lock, fetches=fetches, contents=contents,
        asked=asked,
    )  # fmt: skip


def test_a_package_without_a_wheel_is_built_by_any_pip(wheels):
    """That of Debian 12 runs setup.py otherwise, "invalid command 'bdist_wheel'": so for pyspark."""
    assert [words[:3] for words in wheels.asked] == [("wheel", "--use-pep517", "--require-hashes")]


def test_cached_wheels_are_used_again(setup, wheels):
    assert [wheel.name for wheel in setup.wheels(wheels.lock)] == ["built-1.whl", "fetched-1.whl"]
    assert len(wheels.fetches) == 1


HARMS = {
    "one that the lock names": lambda folder: (folder / "fetched-1.whl").write_bytes(b"evil"),
    "one that was built here": lambda folder: (folder / "built-1.whl").write_bytes(b"evil"),
    "one that is gone": lambda folder: (folder / "built-1.whl").unlink(),
    "an unknown one": lambda folder: (folder / "evil-1.whl").write_bytes(b"evil"),
}


def test_another_python_has_wheels_of_its_own(setup, wheels, monkeypatch):
    """The lock names other versions for it: with 3.11.2 those of 3.11.7 were refused."""
    monkeypatch.setattr(setup.platform, "python_version", lambda: "3.11.0")
    assert setup.wheels(wheels.lock)[0].parent != wheels.folder
    assert len(wheels.fetches) == 2


@pytest.mark.parametrize("harm", HARMS)
def test_changed_wheels_are_not_used(setup, wheels, harm, capsys):
    HARMS[harm](wheels.folder)
    found = {wheel.name: wheel.read_bytes() for wheel in setup.wheels(wheels.lock)}
    assert found == wheels.contents
    assert len(wheels.fetches) == 2
    assert "-1.whl is gone or not what was fetched" in capsys.readouterr().out


def test_a_cache_of_before_gets_its_record(setup, wheels):
    (wheels.folder / "complete").write_text("")
    setup.wheels(wheels.lock)
    (wheels.folder / "built-1.whl").write_bytes(b"evil")
    setup.wheels(wheels.lock)
    assert len(wheels.fetches) == 2


def test_changed_jars_are_fetched_again(monkeypatch, tmp_path):
    digests = {"a.jar": hashlib.sha256(b"good").hexdigest()}
    resolved = []

    def resolve(folder, *_words):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "a.jar").write_bytes(b"good")
        resolved.append(folder)

    monkeypatch.setattr(jars, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(jars, "_resolve", resolve)
    for _ in range(2):
        (jar,) = jars.fetch_jars(("org", "module", "1"), digests, "Another's")
    assert len(resolved) == 1
    jar.write_bytes(b"evil")
    (jar,) = jars.fetch_jars(("org", "module", "1"), digests, "Another's")
    assert (jar.read_bytes(), len(resolved)) == (b"good", 2)
