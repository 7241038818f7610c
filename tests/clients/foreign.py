"""Members on other makers' clients; what they need is fetched as it is locked, and kept."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from spark_jobs.jars import cache_folder
from tests.conftest import ROOT

HERE = ROOT / "tests" / "clients"
LOCK = HERE / "clients.lock"


class ClientMissingError(RuntimeError):
    """A client cannot be had; the message says what to do."""


def python_member(file):
    """Return the command of a member that is a file of Python, with the clients on its path."""
    return (
        "env",
        f"PYTHONPATH={python_packages('py', LOCK)}",
        sys.executable,
        str(HERE / "members" / file),
    )


def python_packages(name, lock):
    """Return a folder of MUSTER_CACHE with the packages that a lock names, for this Python."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    command += ["--require-hashes", "--target", ".", "--requirement", str(lock)]
    return str(kept(f"{name}{platform.python_version()}", [lock], command))


def node_member():
    """Return the command of the member on kafkajs."""
    needed("node", "npm")
    sources = [HERE / "members" / "js" / name for name in ("package.json", "package-lock.json")]
    script = HERE / "members" / "js" / "kafkajs.js"
    folder = kept("js", [*sources, script], ["npm", "ci", "--ignore-scripts", "--no-audit"])
    return ("node", str(folder / script.name))


def go_member(client):
    """Return the command of a member on one of the clients for Go."""
    needed("go")
    sources = sorted((HERE / "members" / "go").iterdir())
    folder = kept("go", sources, ["go", "build", "-o", "members", "."])
    return (str(folder / "members"), client)


def needed(*programs):
    for program in programs:
        if shutil.which(program) is None:
            raise ClientMissingError(f"{program} is missing: install it, or leave this client out")


def kept(name, sources, command):
    """Return a folder of MUSTER_CACHE with copies of sources, where a command has run once."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources))
    folder = cache_folder() / "clients" / f"{name}-{digest.hexdigest()[:16]}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as fresh:
        made = Path(fresh, "made")
        made.mkdir()
        for source in sources:
            shutil.copy(source, made)
        plain = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(
            command, check=False, cwd=made, capture_output=True, text=True, env=plain
        )
        if done.returncode:
            raise ClientMissingError(
                f"{' '.join(command[:3])} failed in {folder}: run once with a network, or set "
                f"MUSTER_CACHE to a filled cache: {done.stderr[-500:]}"
            )
        try:
            made.rename(folder)  # at once, so that what is there is whole
        except OSError:  # another process was faster
            if not folder.exists():
                raise
    return folder
