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
from tests.support.wire_client import Client

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("MUSTER_INSTALL"), reason="installs what is locked: make test-install"
    ),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the root folder"),
]


MEGABYTES_MAX = {"zstd -11": 150, "gzip": 185}
"""Of the whole image, by what compresses it: docs/guide/deploy.md.

BuildKit's best level is as zstd's 11th: measured with its library, they differ by 0.4 %.
"""
BY_ROOT = """set -e
mount --rbind /dev "$0/dev"
mount -t proc proc "$0/proc"
mount --bind "$0" "$0"
mount -o remount,bind,ro "$0"
mount --bind "$1" "$0/var/lib/muster"
shift
exec chroot --userspec=10001:10001 "$0" "$@"
"""
"""Runs a program as the image's user in a root that it may only read, but for the volume."""
IMPORT_ALL = """
import importlib, pkgutil
import assignors, coordinator, muster
for root in (assignors, coordinator, muster):
    for one in pkgutil.walk_packages(root.__path__, root.__name__ + "."):
        if not one.name.endswith("__main__"):
            importlib.import_module(one.name)
from scipy.optimize import linear_sum_assignment
import numpy, opentelemetry.sdk, re2, ssl, uvloop, zoneinfo
assert ssl.create_default_context().get_ca_certs()
assert zoneinfo.ZoneInfo("Europe/Berlin")
assert linear_sum_assignment(numpy.eye(300) @ numpy.eye(300))[0].size == 300
"""
"""Nothing that is left out is missed: deploy/trim.py, deploy/root.py."""


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


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make what the image holds, by the steps of the Dockerfile; return its root and Muster's folder."""
    folder = tmp_path_factory.mktemp("image")
    text = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", " ")
    build, _, last = text.rpartition("\nFROM scratch")
    sent, opt, root = context(folder / "src"), folder / "opt", folder / "made"
    for step in re.findall(r"^RUN (.*)$", build, re.MULTILINE):
        here = step.replace("/opt/muster", str(opt)).replace("/made", str(root))
        subprocess.run(["sh", "-ec", here], cwd=sent, check=True)
    environment = dict(re.findall(r"(\w+)=(\S+)", last.partition("ENV ")[2].partition("\n")[0]))
    yield root, opt, environment
    shutil.rmtree(folder)


def inside(made, volume, *words, **environment):
    """Return the command, and its environment, that runs a program of the image in its root."""
    root, opt, always = made
    command = ["unshare", "--mount", "sh", "-c", BY_ROOT, root, volume, opt / "bin" / words[0]]
    return [*command, *words[1:]], always | environment | {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


@pytest.fixture
def volume(tmp_path):
    (tmp_path / "volume").mkdir()
    os.chown(tmp_path / "volume", 10001, 10001)
    return tmp_path / "volume"


def run(made, volume, *words, **environment):
    command, environment = inside(made, volume, *words, **environment)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_image_is_small(made, tmp_path, record_property):
    for how, most in MEGABYTES_MAX.items():
        if shutil.which(how.split()[0]):
            packed = tmp_path / "image.tar"
            subprocess.run(["tar", "-I", how, "-cf", packed, "-C", made[0], "."], check=True)
            megabytes = packed.stat().st_size / 1e6
            record_property(f"MB by {how}", megabytes)
            assert megabytes < most, how


def test_all_of_muster_is_in_the_image_and_nothing_else_runs_there(made, volume):
    assert run(made, volume, "python", "-c", IMPORT_ALL) == ""
    assert run(made, volume, "python", "-c", "import os; print(os.getuid())") == "10001\n"
    root = made[0]
    assert not [*root.rglob("pip"), *root.glob("usr/bin/*"), *root.glob("bin/*")]
    packages = {file.name for file in (root / "var/lib/dpkg/status.d").iterdir()}
    assert {"libc6", "ca-certificates", "tzdata"} <= packages
    for name in packages:
        assert (root / "usr/share/doc" / name / "copyright").exists(), name


@pytest.mark.parametrize("store", ["/var/lib/muster/store", "s3"])
def test_the_image_serves_its_members_pages_and_backups(made, volume, s3, store, record_property):
    (line,) = re.findall(r"^CMD \[(.*)\]$", (ROOT / "deploy/Dockerfile").read_text(), re.MULTILINE)
    words = [word.strip(' "') for word in line.split(",")]
    where = words[words.index("--store") + 1] = s3.new_store() if store == "s3" else store
    words[words.index("--http") + 1] = "127.0.0.1:19095"
    words += ["--web", "127.0.0.1:19096", "--listen", "127.0.0.1:0", "--topic", "clicks=4"]
    command, environment = inside(made, volume, "muster", *words, **s3.environment())
    began = time.monotonic()
    with running(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        while not is_ready("http://127.0.0.1:19095/readyz"):
            assert process.poll() is None, process.returncode
            time.sleep(0.02)
        record_property(f"seconds until ready, {store}", time.monotonic() - began)
        address = next(line for line in process.stdout if "serves groups at" in line).split()[4]
        with Client(address) as client:
            assert int(client.join("g", "m1", "clicks").error_code) == 0
        assert is_ready("http://127.0.0.1:19096/group?id=g")
        listed = run(made, volume, "muster", "groups", "--store", where, **s3.environment())
        assert re.search(r"\bg\b", listed), listed
        backup = ("backup", "--store", where, "--into", "/var/lib/muster/copy", "--verify")
        run(made, volume, "muster", *backup, **s3.environment())
        process.terminate()
        assert process.wait(60) == 0
    run(made, volume, "muster", "verify", "--store", where, **s3.environment())


def is_ready(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False
