"""Test Muster's wheel on the Sparks and Pythons that it allows (`make test-matrix`).

Each has an environment of its own in MUSTER_CACHE: the locked packages, but for pyspark, Delta's
package, and Muster, which comes from a wheel. What was fetched stays there, so a second run needs
no network. Words after the name are pytest's: `tools/matrix.py -k embed`. `--only NAME` chooses
one or several environments.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import setup

ALONE = ("tests/cluster/test_plain_session.py", "tests/streams/test_group_offsets.py")
"""What needs no Delta on Spark, nor a Kafka."""
TESTS = ALONE + tuple(
    f"tests/spark/test_{name}.py"
    for name in (
        "assign_store", "assignors", "data_source", "demo", "embedding", "event_stream",
        "foreach_owner", "input", "nightly", "session", "spark_tables", "submit", "tables",
        "target_job", "views", "views_at",
    )
)  # fmt: skip
"""What is on Spark."""
FEW = ALONE + tuple(
    f"tests/spark/test_{name}.py" for name in ("embedding", "foreach_owner", "nightly", "submit")
)
"""What another Python could break: processes, workers, what is pickled."""
BESIDE = ("tests", "conf", "docs", "examples")
"""Folders that tests read; the packages are not among them."""


@dataclass(frozen=True)
class Environment:
    """What to test on.

    Attributes
    ----------
    packages
        Beside the locked packages, or instead of them.
    python
        As "3.12"; "" for the Python that runs this.
    tests
        Files of tests.
    """

    packages: tuple[str, ...] = ()
    python: str = ""
    tests: tuple[str, ...] = TESTS

    @property
    def title(self) -> str:
        """What is in it that is its own."""
        words = (*([f"Python {self.python}"] if self.python else []), *self.packages)
        return ", ".join(words) or "the locked packages"


ENVIRONMENTS = {
    "oldest": Environment(("pyspark==4.0.0", "delta-spark==4.0.0")),
    "spark-4.1": Environment(("pyspark==4.1.1", "delta-spark==4.3.1")),
    "locked": Environment(),
    "without-delta": Environment(("pyspark==4.3.0",), tests=ALONE),
    "python-3.12": Environment(python="3.12", tests=FEW),
    "python-3.13": Environment(python="3.13", tests=FEW),
    "python-3.14": Environment(python="3.14", tests=FEW),
}
"""Each Spark, of which the newest with a Delta is locked, and each Python."""


def main() -> None:
    """Make what is not there yet, then test on each; exit 1 if any test fails."""
    setup.main()
    words, names = sys.argv[1:], list(ENVIRONMENTS)
    if words[:1] == ["--only"]:
        names = [word for word in words[1:] if word in ENVIRONMENTS]
        words = [word for word in words[1:] if word not in ENVIRONMENTS]
    results = {name: result_of(name, words) for name in names}
    for name, result in results.items():
        print(f"{name} ({ENVIRONMENTS[name].title}): {result}")
    sys.exit("FAILED" in results.values())


def result_of(name: str, words: list[str]) -> str:
    """Return whether the tests pass in an environment of `ENVIRONMENTS`."""
    asked = ENVIRONMENTS[name]
    python = interpreter(asked.python)
    if python is None:
        return f"not run: there is no Python {asked.python} here"
    folder = environment(name, python)
    return "passed" if tested(folder, asked.tests, words) else "FAILED"


def interpreter(version: str) -> str | None:
    """Return a Python of a version: of the path, or else of pyenv; None if there is none."""
    if version in {"", f"{sys.version_info[0]}.{sys.version_info[1]}"}:
        return sys.executable
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = [shutil.which(f"python{version}"), *sorted(versions.glob(f"{version}.*/bin/python"))]
    for python in [str(one) for one in found if one]:
        done = subprocess.run([python, "-c", ""], capture_output=True, check=False)
        if done.returncode == 0:  # pyenv has commands of the path that only say what to do
            return python
    return None


def environment(name: str, python: str) -> Path:
    """Return the folder of an environment that has Muster's wheel."""
    asked = ENVIRONMENTS[name]
    folder = setup.cache() / "matrix" / name
    stamp, wanted = folder / "packages", "\n".join([setup.LOCK.read_text(), *asked.packages])
    if not stamp.exists() or stamp.read_text() != wanted:
        setup.say(f"making an environment with {asked.title}")
        shutil.rmtree(folder, ignore_errors=True)
        setup.run([python, "-m", "venv", str(folder)], "the virtual environment")
        if python == sys.executable:
            own = [word.partition("==")[0].replace("-", "_") for word in asked.packages]
            own += ["delta_spark"] if asked.tests is ALONE else []
            names = tuple(f"{package}-" for package in own)
            locked = [one for one in setup.wheels() if not one.name.startswith(names)]
            pip(folder, "install", "--no-index", *locked, *fetched(asked.packages))
        else:
            pip(folder, "install", "--requirement", setup.LOCK)
        stamp.write_text(wanted)
    shutil.rmtree(setup.ROOT / "build", ignore_errors=True)  # it may have files that are gone
    with tempfile.TemporaryDirectory() as built:
        pip(folder, "wheel", "--no-index", "--no-build-isolation", "--wheel-dir", built, setup.ROOT)
        pip(folder, "install", "--no-index", "--force-reinstall", *Path(built).glob("*.whl"))
    if asked.tests is not ALONE:
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
                setup.pip("wheel", "--use-pep517", "--no-deps", "--wheel-dir", folder, package)
                for wheel in Path(folder).glob("*.whl"):
                    wheel.rename(kept / wheel.name)  # at once, so that what is there is whole
        found += kept.glob(pattern)
    return found


def tested(folder: Path, tests: tuple[str, ...], words: list[str]) -> bool:
    """Run a copy of the tests in an environment, away from the sources; tell whether they passed.

    Beside the sources, pytest would import those instead of the wheel.
    """
    setup.say(f"testing in {folder}")
    with tempfile.TemporaryDirectory() as away:
        for beside in BESIDE:
            shutil.copytree(setup.ROOT / beside, Path(away) / beside)
        shutil.copy(setup.ROOT / "pyproject.toml", away)
        started = [str(folder / "bin/pytest"), "-n", "2", *words, *tests]
        return subprocess.run(started, cwd=away, check=False).returncode == 0


def pip(folder: Path, command: str, *words: str | Path) -> None:
    """Run an environment's pip quietly, without dependencies."""
    start = [str(folder / "bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    setup.run([*start, command, "--no-deps", *map(str, words)], "Python packages")


if __name__ == "__main__":
    main()
