"""Make what a release consists of, in dist/ (`make release`): files that anyone can make again.

A wheel and an sdist, made twice in folders of their own, with the same bytes; a bill of materials
of what a server installs (CycloneDX); from what they were made; the sums of all. Then the wheel is
installed, with what deploy/requirements.lock names, in an empty environment of each Python that
there is, and tried.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import setup
from matrix import interpreter
from provenance import make_provenance, write_provenance

DIST = setup.ROOT / "dist"
TOOLS = setup.ROOT / "tools/release.lock"
DEPLOYED = setup.ROOT / "deploy/requirements.lock"
SPEC = {"topics": {"a": 3}, "members": {"m": {"subscribed": ["a"]}}}


def main() -> None:
    """Make all files, check them, and say what there is."""
    setup.main()
    project = tomllib.loads((setup.ROOT / "pyproject.toml").read_text())["project"]
    made_at = committed_at()
    shutil.rmtree(DIST, ignore_errors=True)
    with environment(sys.executable, TOOLS) as tools:
        files = made_twice(tools, made_at)
        with environment(sys.executable, DEPLOYED, files[-1]) as server:
            files.append(bill_of_materials(tools, server, project["version"]))
    given = [str(lock.relative_to(setup.ROOT)) for lock in (TOOLS, DEPLOYED)]
    statement = make_provenance(files, git("rev-parse", "HEAD"), made_at, setup.ROOT, given)
    files.append(write_provenance(statement, DIST / f"muster-{project['version']}.provenance.json"))
    write_sums(files, DIST)
    tried = [version for version in pythons(project) if tried_on(version, files[1])]
    name = f"[{project['version']}] \u2013 unreleased"
    unreleased = name in (setup.ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for file in [*files, DIST / "SHA256SUMS"]:
        print(f"{file.relative_to(setup.ROOT)}  {file.stat().st_size:,} bytes")
    print(f"the wheel works on Python {', '.join(tried)}")
    if unreleased:
        print(f"before you publish it: CHANGELOG.md says that {project['version']} is unreleased")


def committed_at() -> int:
    """Return the time of the commit, which the files bear; stop if they would have more than it."""
    if git("status", "--porcelain", "--untracked-files=no"):
        setup.stop("the clone has changes that are not committed: commit them first")
    return int(git("log", "-1", "--format=%ct"))


def git(*words: str) -> str:
    """Return what git says."""
    command = ["git", "-C", str(setup.ROOT), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        setup.stop(f"git {words[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def made_twice(tools: Path, made_at: int) -> list[Path]:
    """Make an sdist and a wheel twice; stop unless they are the same, else put them into dist/."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        first, second = (made(tools, Path(folder), made_at) for folder in (one, other))
        for a, b in zip(first, second, strict=True):
            if a.name != b.name or a.read_bytes() != b.read_bytes():
                setup.stop(f"{a.name} has other bytes when it is made again")
        DIST.mkdir()
        return [Path(shutil.copy(file, DIST)) for file in first]


def made(tools: Path, folder: Path, made_at: int) -> list[Path]:
    """Make an sdist and a wheel of what is committed, in a folder of their own."""
    source, out = folder / "source", folder / "out"
    archive = subprocess.run(
        ["git", "-C", setup.ROOT, "archive", "HEAD"], capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(source, filter="data")
    command = [tools / "bin/python", "-m", "build", "--no-isolation", "--outdir", out, source]
    done = subprocess.run(
        command, env=os.environ | {"SOURCE_DATE_EPOCH": str(made_at)}, umask=0o022,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        setup.stop(f"building: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    pack_again(sdist, made_at)
    return [sdist, wheel]


def pack_again(sdist: Path, made_at: int) -> None:
    """Give an sdist the time of the commit throughout: setuptools writes that of now."""
    packed = io.BytesIO()
    with (
        tarfile.open(sdist) as old,
        gzip.GzipFile("", "wb", fileobj=packed, mtime=made_at) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for entry in sorted(old.getmembers(), key=lambda entry: entry.name):
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = made_at, 0, 0, "", ""
            entry.pax_headers = {}
            new.addfile(entry, old.extractfile(entry) if entry.isfile() else None)
    sdist.write_bytes(packed.getvalue())


def bill_of_materials(tools: Path, server: Path, version: str) -> Path:
    """Write what an environment has, as CycloneDX."""
    bill = DIST / f"muster-{version}.cdx.json"
    command = [
        tools / "bin/cyclonedx-py", "environment", "--pyproject", setup.ROOT / "pyproject.toml",
        "--output-reproducible", "--output-file", bill, server / "bin/python",
    ]  # fmt: skip
    setup.run([str(word) for word in command], "the bill of materials")
    there = {
        (part["name"].lower().replace("_", "-"), part["version"])
        for part in json.loads(bill.read_text())["components"]
    }
    if missing := locked(DEPLOYED) - there:
        setup.stop(f"{bill.name} lacks {sorted(missing)} of {DEPLOYED.relative_to(setup.ROOT)}")
    return bill


def locked(lock: Path) -> set[tuple[str, str]]:
    """Return the names and versions of a lock without those of other systems."""
    lines = re.findall(r"^([\w.-]+)(?:\[.*?\])?==(\S+)([^\\\n]*)", lock.read_text(), re.MULTILINE)
    return {(name, version) for name, version, marker in lines if ";" not in marker}


def write_sums(files: list[Path], folder: Path) -> None:
    """Write the sums of files beside them, as `sha256sum --check` reads them."""
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (folder / "SHA256SUMS").write_text("".join(lines))


def pythons(project: dict[str, list[str]]) -> list[str]:
    """Return the Pythons that the project names."""
    classifiers = "\n".join(project["classifiers"])
    return re.findall(r"Python :: (3\.\d+)$", classifiers, re.MULTILINE)


def tried_on(version: str, wheel: Path) -> bool:
    """Use the wheel in an empty environment of a Python; False if there is no such Python."""
    python = interpreter(version)
    if python is None:
        setup.say(f"there is no Python {version} here")
        return False
    setup.say(f"trying the wheel on Python {version}")
    with environment(python, DEPLOYED, wheel) as folder, tempfile.TemporaryDirectory() as away:
        for words, wanted in {
            ("-m", "pip", "check"): "No broken requirements found.",
            ("-m", "muster", "--version"): f"muster {wheel.name.split('-')[1]}",
            ("-m", "muster", "assign"): '"m":',
            ("-c", "import muster; print(sorted(muster.__all__))"): "Coordinator",
        }.items():
            done = subprocess.run(
                [folder / "bin/python", *words], cwd=away, input=json.dumps(SPEC),
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode or wanted not in done.stdout:
                setup.stop(f"Python {version}: {' '.join(words)}: {done.stdout}{done.stderr}")
    return True


@contextmanager
def environment(python: str, lock: Path, *wheels: Path) -> Iterator[Path]:
    """Make an environment with what a lock names, each checked by its hash, and with wheels."""
    with tempfile.TemporaryDirectory(prefix="muster-release-") as name:
        folder = Path(name)
        setup.run([python, "-m", "venv", name], "an environment")
        pip = [
            str(folder / "bin/python"),
            "-m",
            "pip",
            "-q",
            "--disable-pip-version-check",
            "install",
        ]
        setup.run([*pip, "--require-hashes", "-r", str(lock)], "Python packages")
        for wheel in wheels:
            setup.run([*pip, "--no-deps", str(wheel)], str(wheel))
        yield folder


if __name__ == "__main__":
    main()
