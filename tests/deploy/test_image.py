"""The steps of the image, where no daemon runs them: in a clean folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
import urllib.request

import pytest

from tests.conftest import ROOT
from tests.support.processes import running

pytestmark = pytest.mark.skipif(
    not os.environ.get("MUSTER_INSTALL"), reason="installs what is locked: make test-install"
)


MEGABYTES_MAX = {"zstd": 150, "gzip": 165}
"""Of the layer that is ours, by what compresses it: docs/guide/deploy.md."""
IMPORT_ALL = """
import importlib, pkgutil
import assignors, coordinator, muster
for root in (assignors, coordinator, muster):
    for one in pkgutil.walk_packages(root.__path__, root.__name__ + "."):
        if not one.name.endswith("__main__"):
            importlib.import_module(one.name)
from scipy.optimize import linear_sum_assignment
import numpy, opentelemetry.sdk, re2, uvloop
assert linear_sum_assignment(numpy.eye(300) @ numpy.eye(300))[0].size == 300
"""
"""Nothing that is left out is missed: deploy/trim.py."""


def context(folder):
    """Return a copy of what is sent to the daemon."""
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line[:1] != "!":
            continue
        source, there = ROOT / line[1:], folder / line[1:]
        there.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, there, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, there)
    return folder


def test_the_steps_of_the_image_make_a_server(tmp_path, record_property):
    text = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", " ")
    build, _, last = text.rpartition("\nFROM ")
    sent, opt = context(tmp_path / "src"), tmp_path / "opt"
    for step in re.findall(r"^RUN (.*)$", build, re.MULTILINE):
        subprocess.run(["sh", "-ec", step.replace("/opt/muster", str(opt))], cwd=sent, check=True)
    done = subprocess.run(
        [opt / "bin/python", "-c", IMPORT_ALL],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    for program, most in MEGABYTES_MAX.items():
        if shutil.which(program):
            packed = tmp_path / f"image.tar.{program}"
            subprocess.run(["tar", "-I", program, "-cf", packed, "-C", opt, "."], check=True)
            megabytes = packed.stat().st_size / 1e6
            record_property(f"MB beside the base, by {program}", megabytes)
            assert megabytes < most, program
    (command,) = re.findall(r"^CMD \[(.*)\]$", last, re.MULTILINE)
    home, words = tmp_path / "home", [word.strip(' "') for word in command.split(",")]
    home.mkdir()
    words = [word.replace("/var/lib/muster", str(home)) for word in words]
    words[words.index("--http") + 1] = "127.0.0.1:19095"
    began = time.monotonic()
    with running(
        [opt / "bin/muster", *words, "--listen", "127.0.0.1:0"], cwd=home,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home)},
    ) as process:  # fmt: skip
        while not is_ready("http://127.0.0.1:19095/readyz"):
            assert process.poll() is None, process.returncode
            time.sleep(0.02)
        record_property("seconds until ready", time.monotonic() - began)
        process.terminate()
        assert process.wait(60) == 0
    assert (home / "store/log").exists()


def is_ready(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False
