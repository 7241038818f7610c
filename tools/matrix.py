"""Test Muster's wheel on the oldest and on the newest Spark that it allows (`make test-matrix`).

Each has an environment of its own in MUSTER_CACHE: the locked packages, but for pyspark, Delta's
package, and Muster, which comes from a wheel. What was fetched stays there, so a second run needs
no network. Words after the name are pytest's: `tools/matrix.py -k embed`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import setup

SPARKS = {
    "oldest": ("pyspark==4.0.0", "delta-spark==4.0.0"),
    "newest": ("pyspark==4.1.4", "delta-spark==4.4.0"),
}
"""The ends of the ranges in pyproject.toml, as far as they were tested."""
TESTS = (
    "assign_store", "assignors", "demo", "embedding", "foreach_owner", "input", "nightly",
    "session", "spark_tables", "submit", "tables", "target_job", "views", "views_at",
)  # fmt: skip
"""What is on Spark: tests/spark/test_*.py."""
BESIDE = ("tests", "conf", "docs", "examples")
"""Folders that tests read; the packages are not among them."""


def main() -> None:
    """Make what is not there yet, then test on each Spark; exit 1 if any test fails."""
    setup.main()
    results = {name: tested(environment(name), sys.argv[1:]) for name in SPARKS}
    for name, good in results.items():
        print(f"{name} ({', '.join(SPARKS[name])}): {'passed' if good else 'FAILED'}")
    sys.exit(not all(results.values()))


def environment(name: str) -> Path:
    """Return the folder of an environment that has a Spark of `SPARKS`, and Muster's wheel."""
    folder = setup.cache() / "matrix" / name
    stamp, wanted = folder / "packages", "\n".join([setup.LOCK.read_text(), *SPARKS[name]])
    if not stamp.exists() or stamp.read_text() != wanted:
        setup.say(f"making an environment with {' and '.join(SPARKS[name])}")
        shutil.rmtree(folder, ignore_errors=True)
        setup.run([sys.executable, "-m", "venv", str(folder)], "the virtual environment")
        own = [word.partition("==")[0].replace("-", "_") for word in SPARKS[name]]
        locked = [
            wheel
            for wheel in setup.wheels()
            if not wheel.name.startswith(tuple(f"{package}-" for package in own))
        ]
        pip(folder, "install", "--no-index", *locked, *fetched(SPARKS[name]))
        stamp.write_text(wanted)
    shutil.rmtree(setup.ROOT / "build", ignore_errors=True)  # it may have files that are gone
    with tempfile.TemporaryDirectory() as built:
        pip(folder, "wheel", "--no-index", "--no-build-isolation", "--wheel-dir", built, setup.ROOT)
        pip(folder, "install", "--no-index", "--force-reinstall", *Path(built).glob("*.whl"))
    setup.run([str(folder / "bin/python"), "-m", "spark_jobs.jars"], "Delta's jars", cwd=folder)
    return folder


def fetched(packages: tuple[str, ...]) -> list[Path]:
    """Return the wheels of packages, fetching those that are not in the cache."""
    kept = setup.cache() / "matrix" / "wheels"
    kept.mkdir(parents=True, exist_ok=True)
    found = []
    for package in packages:
        pattern = f"{package.replace('-', '_').replace('==', '-')}-*.whl"
        if not list(kept.glob(pattern)):
            setup.say(f"fetching {package}")
            with tempfile.TemporaryDirectory(dir=kept) as folder:
                setup.pip("wheel", "--no-deps", "--wheel-dir", folder, package)
                for wheel in Path(folder).glob("*.whl"):
                    wheel.rename(kept / wheel.name)  # at once, so that what is there is whole
        found += kept.glob(pattern)
    return found


def tested(folder: Path, words: list[str]) -> bool:
    """Run a copy of the tests in an environment, away from the sources; tell whether they passed.

    Beside the sources, pytest would import those instead of the wheel.
    """
    setup.say(f"testing in {folder}")
    files = [f"tests/spark/test_{name}.py" for name in TESTS]
    with tempfile.TemporaryDirectory() as away:
        for beside in BESIDE:
            shutil.copytree(setup.ROOT / beside, Path(away) / beside)
        shutil.copy(setup.ROOT / "pyproject.toml", away)
        started = [str(folder / "bin/pytest"), "-n", "2", *words, *files]
        return subprocess.run(started, cwd=away, check=False).returncode == 0


def pip(folder: Path, command: str, *words: str | Path) -> None:
    """Run an environment's pip quietly, without dependencies."""
    start = [str(folder / "bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    setup.run([*start, command, "--no-deps", *map(str, words)], "Python packages")


if __name__ == "__main__":
    main()
