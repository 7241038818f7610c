"""Kafka clients of other makers for Python; they are fetched as `clients.lock` says, and kept."""

from __future__ import annotations

import hashlib
import platform
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


def member_of(file):
    """Return the command of a member that is a file of Python, with all clients on its path."""
    return ("env", f"PYTHONPATH={packages()}", sys.executable, str(HERE / "members" / file))


def packages():
    """Return the folder that has the clients, a folder of MUSTER_CACHE."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    folder = cache_folder() / "clients" / f"{digest[:16]}-py{platform.python_version()}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as fresh:
        fetched = Path(fresh, "packages")
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        pip += ["--require-hashes", "--target", str(fetched), "--requirement", str(LOCK)]
        done = subprocess.run(pip, check=False, capture_output=True, text=True)
        if done.returncode:
            raise ClientMissingError(
                f"clients of {LOCK.name} are not in {folder} and cannot be fetched: run once with "
                f"a network, or set MUSTER_CACHE to a filled cache: {done.stderr[-300:]}"
            )
        fetched.rename(folder)  # at once, so that what is there is whole
    return folder
