"""Where a release comes from: what docs/design/release.md says of pins, sums and provenance."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT

LOCKS = [
    *("requirements.lock", "deploy/requirements.lock", "tools/release.lock"),
    *("tests/clients/clients.lock", "tests/cluster/connect.lock", "tests/storage/readers.lock"),
]
JARS = [
    *("spark_jobs/jars.lock", "spark_jobs/s3.lock", "tests/clients/tools.lock"),
    "tests/support/spark/kafka_jars.lock",
]
PAGE = (ROOT / "docs/design/release.md").read_text()


@pytest.fixture(scope="module")
def tools():
    """The modules of tools/ by name."""

    def load(name):
        spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/{name}.py")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    before = dict(sys.modules)
    try:
        yield {name: load(name) for name in ("setup", "matrix", "provenance", "release")}
    finally:
        for name in ("setup", "matrix", "provenance", "release"):
            if name not in before:
                del sys.modules[name]


@pytest.mark.parametrize("lock", LOCKS)
def test_each_package_has_one_version_and_its_sums(lock):
    text = (ROOT / lock).read_text().replace("\\\n", " ")
    rows = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    assert len(rows) > 1
    for row in rows:
        assert re.match(r"[\w.-]+(\[[\w,-]+\])?==\S+ .*--hash=sha256:[0-9a-f]{64}", row), row


def test_no_lock_is_forgotten():
    listed = ["git", "-C", ROOT, "ls-files", "*.lock"]
    found = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
    assert sorted(found) == sorted([*LOCKS, *JARS])


@pytest.mark.parametrize("lock", JARS)
def test_each_jar_has_its_sum(lock):
    lines = [line for line in (ROOT / lock).read_text().splitlines() if line and line[0] != "#"]
    jars = [line for line in lines if not re.match(r"(spark|hadoop|kafka) ", line)]
    assert len(jars) > 1
    assert all(re.match(r"[0-9a-f]{64} +\S", line) for line in jars)


def test_what_installs_a_server_checks_sums():
    for file in ("deploy/Dockerfile", "docs/guide/deploy.md"):
        installs = re.findall(r"pip install (.*)", (ROOT / file).read_text())
        assert installs
        assert all("--require-hashes" in one or "--no-deps" in one for one in installs)


def test_the_provenance_names_the_commit_and_the_sums(tools, tmp_path):
    wheel = tmp_path / "muster-1.whl"
    wheel.write_bytes(b"wheel")
    given = ["deploy/requirements.lock", "tools/release.lock"]
    make, write = (getattr(tools["provenance"], f"{one}_provenance") for one in ("make", "write"))
    statement = make([wheel], "c0ffee", 1_700_000_000, ROOT, given)
    assert statement["subject"] == [
        {"name": "muster-1.whl", "digest": {"sha256": hashlib.sha256(b"wheel").hexdigest()}}
    ]
    source, *locks = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": "c0ffee"}
    for name, lock in zip(given, locks, strict=True):
        found = hashlib.sha256((ROOT / name).read_bytes()).hexdigest()
        assert lock == {"name": name, "digest": {"sha256": found}}
    assert statement["predicate"]["runDetails"]["metadata"] == {"startedOn": "2023-11-14T22:13:20Z"}
    one, other = (write(statement, tmp_path / name).read_bytes() for name in ("a", "b"))
    assert one == other
    assert json.loads(one) == statement


def test_the_sums_are_those_that_sha256sum_checks(tools, tmp_path):
    file = tmp_path / "muster-1.whl"
    file.write_bytes(b"wheel")
    tools["release"].write_sums([file], tmp_path)

    def check():
        command = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode

    assert check() == 0
    file.write_bytes(b"another")
    assert check() == 1


def test_the_page_names_the_files_of_a_release():
    text = (ROOT / "tools/release.py").read_text()
    for ending in (".cdx.json", ".provenance.json", "SHA256SUMS"):
        assert ending in text
        assert ending in PAGE
    base = re.findall(r"^FROM (\S+)", (ROOT / "deploy/Dockerfile").read_text(), re.MULTILINE)
    assert base[-1] == "scratch", "what the image has is all from the first"
    assert f"`{base[0]}`" in PAGE
