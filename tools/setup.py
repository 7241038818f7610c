"""Set up the project: virtual environment, locked dependencies, Java, Delta's jars.

Run by `make` with the system's Python; needs only the standard library. Every step is skipped when
its result is there, so a second run costs nothing and needs no network. What was fetched is kept in
MUSTER_CACHE (default: ~/.cache/muster), from which a fresh clone is set up offline.
When something is missing it says so in one line and exits with 1.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
READY = VENV / ".muster-ready"
LOCK = ROOT / "requirements.lock"
RECORD = "complete"
JAVA_MIN = 17
JAVA_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")


def main() -> None:
    """Do what is not done yet."""
    if sys.version_info < (3, 11):  # noqa: UP036 - the system's Python may be older
        stop(f"Python 3.11 or later is needed, this is {sys.version.split()[0]}")
    java()
    virtual_environment()
    dependencies()
    run([python(), "-m", "spark_jobs.jars"], "Delta's jars")
    READY.write_text("set up by tools/setup.py\n")


def java() -> None:
    """Find Java 17 or later, or install it (Debian, root)."""
    if java_version() >= JAVA_MIN:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        stop(f"Java {JAVA_MIN} or later is missing: sudo apt-get install {JAVA_PACKAGES[0]}")
    say("installing Java")
    apt("Java", JAVA_PACKAGES)
    if java_version() < JAVA_MIN:
        stop(f"Java {JAVA_MIN} or later is missing: apt-get has none; set JAVA_HOME")


def java_version() -> int:
    """Return the major version of the java that Spark would use, 0 for none."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else "java"
    try:
        done = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found[1]) if found else 0


def apt(what: str, packages: tuple[str, ...]) -> None:
    """Install the first of the packages that there is."""
    quiet = {"env": os.environ | {"DEBIAN_FRONTEND": "noninteractive"}, "capture_output": True}
    subprocess.run(["apt-get", "update", "-q"], check=False, **quiet)
    for package in packages:
        command = ["apt-get", "install", "-qy", "--no-install-recommends", package]
        if subprocess.run(command, check=False, **quiet).returncode == 0:
            return
    stop(f"{what} is missing and apt-get cannot install {packages[0]}: is there a network?")


def virtual_environment(folder: Path = VENV) -> None:
    """Make .venv, with pip."""
    if (folder / "bin" / "pip").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "venv", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode == 0:
        return
    shutil.rmtree(folder, ignore_errors=True)
    package = f"python3.{sys.version_info.minor}-venv"
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        stop(f"Python's venv module is incomplete: sudo apt-get install {package}")
    say("installing Python's venv module")
    apt("Python's venv module", (package, "python3-venv"))
    run(command, "the virtual environment")


def dependencies() -> None:
    """Install exactly what requirements.lock names, by way of a folder of wheels."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    stamp = VENV / ".muster-lock"
    if not stamp.exists() or stamp.read_text() != digest:
        found = [str(wheel) for wheel in wheels()]
        say("installing dependencies")
        pip("install", "--no-index", "--no-deps", "--no-compile", *found)
        compile_packages()
        stamp.write_text(digest)
    project = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    stamp = VENV / ".muster-project"
    if not stamp.exists() or stamp.read_text() != project:
        # "compat" puts the clone itself on the path: setuptools' usual hook is invisible to mypy
        options = ("--no-index", "--no-deps", "--no-build-isolation")
        mode = ("--config-settings", "editable_mode=compat")
        pip("install", *options, *mode, "--editable", str(ROOT))
        stamp.write_text(project)


def compile_packages() -> None:
    """Compile what was installed, on all cores: pip would use one.

    Python compiles on first import, but not where PYTHONDONTWRITEBYTECODE is set, as many images
    set it: there each command would recompile pandas, pyarrow and the rest, for two seconds.
    A package may hold templates that are no Python, so the compiler's exit code says nothing.
    """
    packages = next((VENV / "lib").glob("python*/site-packages"))
    command = [python(), "-m", "compileall", "-q", "-j", "0", str(packages)]
    subprocess.run(command, capture_output=True, check=False)


def wheels(lock: Path = LOCK) -> list[Path]:
    """Return the wheels that requirements.lock names, fetched if the cache has none, or others.

    The lock may name other versions for 3.11.2 than for 3.11.7, so each Python has its own.
    """
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    folder = cache() / "wheels" / f"{digest[:16]}-py{platform.python_version()}"
    if not (folder / RECORD).exists():
        fetch(folder, lock)
    elif wrong := changed(folder, lock):
        say(f"{folder / wrong} is gone or not what was fetched; fetching all again")
        fetch(folder, lock)
    return sorted(folder.glob("*.whl"))


def fetch(folder: Path, lock: Path) -> None:
    """Fetch every locked package, checked by its hash, as a wheel."""
    say("fetching dependencies (once; about 900 MB)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as fresh:
        fetched = Path(fresh, "wheels")
        pip(
            # pip before 23.1, as of Debian 12, would run setup.py, and .venv has no wheel for it
            *("wheel", "--use-pep517", "--require-hashes"),
            *("--wheel-dir", str(fetched), "--requirement", str(lock)),
            what=f"Python packages are not in {cache()} and cannot be fetched",
            remedy="run once with a network, or set MUSTER_CACHE to a filled cache",
        )
        record(fetched, digests(fetched))
        shutil.rmtree(folder, ignore_errors=True)
        fetched.rename(folder)  # at once, so that what is there is whole


def changed(folder: Path, lock: Path) -> str | None:
    """Name a wheel of the cache that is not what was fetched, if there is one.

    The lock has the hash of what was fetched as a wheel; what was built here from its source has
    only the record, which caches of before do not have: they get it now.
    """
    locked = set(re.findall(r"sha256:([0-9a-f]{64})", lock.read_text()))
    lines = (folder / RECORD).read_text().splitlines()
    known = {name: digest for digest, name in (line.split(maxsplit=1) for line in lines)}
    found = digests(folder)
    if not known:
        record(folder, found)
        return None
    wrong = {name for name, digest in found.items() if digest not in locked | {known.get(name, "")}}
    return min(wrong | (known.keys() - found.keys()), default=None)


def digests(folder: Path) -> dict[str, str]:
    """Return the sha256 of each wheel in a folder."""
    found = {}
    for wheel in sorted(folder.glob("*.whl")):
        with wheel.open("rb") as file:
            found[wheel.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def record(folder: Path, found: dict[str, str]) -> None:
    """Say that a folder of wheels is whole, and what they are."""
    lines = [f"{digest}  {name}\n" for name, digest in found.items()]
    (folder / RECORD).write_text("".join(lines))


def pip(*arguments: str, what: str = "Python packages", remedy: str = "") -> None:
    """Run the environment's pip quietly."""
    command = [python(), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    run(command, what, remedy)


def run(command: list[str], what: str, remedy: str = "", cwd: Path = ROOT) -> None:
    """Run a command; on failure stop with the line that says why. Our own says what it is about."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
        why = ([line for line in lines if "error" in line.lower()] or lines)[-1]
        if why.startswith("muster: "):
            stop(why.removeprefix("muster: "))
        stop(f"{what}: {why}; {remedy}" if remedy else f"{what}: {why}")


def python() -> str:
    """Return the environment's interpreter."""
    return str(VENV / "bin" / "python")


def cache() -> Path:
    """Return the folder that `spark_jobs.jars.cache_folder` names; that one needs the package."""
    base = os.environ.get("XDG_CACHE_HOME")
    default = (Path(base) if base else Path.home() / ".cache") / "muster"
    return Path(os.environ.get("MUSTER_CACHE") or default)


def say(text: str) -> None:
    """Print a line of progress."""
    print(f"setup: {text} …", flush=True)


def stop(text: str) -> NoReturn:
    """End with one line."""
    sys.exit(f"setup: {text}")


if __name__ == "__main__":
    main()
