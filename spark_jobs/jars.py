"""Resolve Delta's jars once, cache them in a folder of Muster's, and pass them to Spark as files.

Resolving with `spark.jars.packages` takes 6 s at every start, and fails if the user's ~/.m2 has
poms without jars. Instead, Ivy (which comes with pyspark) runs once, with only Maven Central and a
separate cache. The downloads are checked against `jars.lock`. Once the jars are cached, this module
neither imports pyspark nor starts a JVM.

`python -m spark_jobs.jars` resolves the jars and copies them into this environment's Spark; with
`--print` it prints their paths, for `spark-submit --jars`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
_RESOLVE_SECONDS = 900
_IVY_HEAD = """<ivy-module version="2.0"><info organisation="muster" module="jars"/>
<configurations><conf name="default"/></configurations><dependencies>"""
_IVY_MODULE = (
    '<dependency org="{}" name="{}" rev="{}" transitive="false" conf="default-&gt;master"/>'
)


class JarsMissingError(FileNotFoundError):
    """Delta's jars are missing and cannot be downloaded. The message says what to do."""


def cache_folder() -> Path:
    """Return the folder of Muster's downloads: MUSTER_CACHE, else in the user's cache folder."""
    own = os.environ.get("MUSTER_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "muster"


@dataclass(frozen=True, slots=True)
class Jars:
    """A Maven artifact, and its dependencies that Spark does not have.

    Attributes
    ----------
    artifact
        Organisation, module, version.
    digests
        {file name: sha256}
    """

    artifact: tuple[str, str, str]
    digests: dict[str, str]

    @property
    def version(self) -> tuple[int, ...]:
        """The artifact's version as numbers, for comparison."""
        return _numbers(self.artifact[2])


def read_lock() -> dict[str, list[Jars]]:
    """Return Delta's jars for each minor version of Spark ("4.1"), oldest first."""
    out: dict[str, list[Jars]] = {}
    for text in (HERE / "jars.lock").read_text().splitlines():
        words = text.split()
        if not words or words[0] == "#":
            continue
        if words[0] == "spark":
            _, line, organisation, module, version = words
            found = Jars((organisation, module, version), {})
            out.setdefault(line, []).append(found)
        else:
            digest, name = words
            found.digests[name] = digest
    return out


def fitting(spark: Path) -> Jars:
    """Return Delta's jars for the Spark that has this folder of jars.

    If there are several, return the newest that is not newer than an installed delta-spark package.

    Raises
    ------
    JarsMissingError
        Spark is missing, or its version is unknown to Muster.
    """
    cores = sorted(spark.glob("spark-core_*.jar"))
    if not cores:
        raise JarsMissingError(f"no Spark found in {spark}: pip install pyspark")
    version = cores[-1].stem.rpartition("-")[2]
    lines, line = read_lock(), ".".join(version.split(".")[:2])
    if line not in lines:
        *others, last = lines
        raise JarsMissingError(
            f"Spark {version} in {spark} has no Delta, and Muster only knows the jars for Spark "
            f"{', '.join(others)} and {last}: put Delta's jars for it into that folder"
        )
    newest = _delta_installed()
    older = [jars for jars in lines[line] if newest is None or jars.version <= newest]
    return older[-1] if older else lines[line][0]


def _delta_installed() -> tuple[int, ...] | None:
    try:
        return _numbers(metadata.version("delta-spark"))
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def own_jars() -> Path:
    """Return the folder of jars of the pyspark that this interpreter would import.

    Raises
    ------
    JarsMissingError
        pyspark is not installed.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsMissingError(
            "pyspark is not installed: pip install 'muster[spark]', or make setup"
        )
    return Path(spec.origin).parent / "jars"


def spark_jars() -> Path:
    """Return the folder of jars of the Spark that a session would use: SPARK_HOME's or pyspark's.

    Raises
    ------
    JarsMissingError
        pyspark is not installed.
    """
    home = os.environ.get("SPARK_HOME")
    return Path(home, "jars") if home else own_jars()


def in_spark() -> bool:
    """Whether the Spark that a session would use has Delta among its own jars."""
    return any(spark_jars().glob("delta-spark_*.jar"))


def delta_jars() -> list[Path]:
    """Return Delta's jars from the cache; resolve them if they are missing.

    Raises
    ------
    JarsMissingError
        They cannot be downloaded, or do not match `jars.lock`.
    """
    jars = fitting(spark_jars())
    return fetch_jars(jars.artifact, jars.digests, "Delta's")


def fetch_jars(artifact: tuple[str, str, str], digests: dict[str, str], whose: str) -> list[Path]:
    """Return jars of an artifact from the cache; resolve them if they are missing or changed.

    Parameters
    ----------
    digests
        The wanted jars, with their sha256. Other dependencies of the artifact are dropped.
    whose
        The first word of error messages.

    Raises
    ------
    JarsMissingError
        They cannot be downloaded, or have another sha256.
    """
    folder = cache_folder() / "jars" / "-".join(artifact[1:])
    if not all(_is(folder / name, digest) for name, digest in digests.items()):
        _resolve(folder, ("-dependency", *artifact), digests, whose)
    return [folder / name for name in digests]


def fetch_modules(name: str, modules: dict[tuple[str, str, str], str], whose: str) -> list[Path]:
    """Return the jars of some artifacts, without what they depend on, as `fetch_jars` does.

    Parameters
    ----------
    name
        Of their folder in the cache.
    modules
        {(organisation, module, version): sha256 of its jar}
    """
    folder = cache_folder() / "jars" / name
    digests = {
        f"{module}-{version}.jar": digest for (_, module, version), digest in modules.items()
    }
    if not all(_is(folder / jar, digest) for jar, digest in digests.items()):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
            file.write(_IVY_HEAD)
            for module in modules:
                file.write(_IVY_MODULE.format(*module))
            file.write("</dependencies></ivy-module>")
            file.flush()
            _resolve(folder, ("-ivy", file.name), digests, whose)
    return [folder / jar for jar in digests]


def install() -> None:
    """Copy the jars into this environment's Spark, so that every session has Delta.

    Jars that an earlier install copied for another version of Spark are removed.
    """
    target = own_jars()
    jars = fitting(target)
    others = {name for line in read_lock().values() for other in line for name in other.digests}
    for name in others - jars.digests.keys():
        (target / name).unlink(missing_ok=True)
    if all(_is(target / name, digest) for name, digest in jars.digests.items()):
        return
    copy_jars(fetch_jars(jars.artifact, jars.digests, "Delta's"), target)


def copy_jars(jars: list[Path], target: Path) -> None:
    """Copy jars into a Spark's folder, those that it does not have."""
    for jar in jars:
        there = target / jar.name
        if not there.exists() or there.read_bytes() != jar.read_bytes():
            # Spark would load an incomplete jar under its final name.
            part = target / f"{jar.name}.part"
            shutil.copy2(jar, part)
            part.replace(there)


def _is(jar: Path, digest: str) -> bool:
    """Whether a jar exists and matches the lock."""
    return jar.exists() and hashlib.sha256(jar.read_bytes()).hexdigest() == digest


def _resolve(folder: Path, wanted: tuple[str, ...], digests: dict[str, str], whose: str) -> None:
    java = java_command()
    ivy = next(iter(sorted(spark_jars().glob("ivy-*.jar"))), None)
    if java is None or ivy is None:
        raise JarsMissingError(
            "Java 17 or later is missing: sudo apt-get install openjdk-17-jre-headless"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as fresh:
        command = [
            *(java, f"-Dmuster.ivy={cache_folder() / 'ivy'}", "-jar", str(ivy)),
            *("-settings", str(HERE / "ivysettings.xml"), "-confs", "default"),
            *wanted,
            *("-retrieve", f"{fresh}/[artifact]-[revision].[ext]"),
        ]
        try:
            done = subprocess.run(  # noqa: S603 - our own command
                command, capture_output=True, text=True, timeout=_RESOLVE_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise JarsMissingError(_unreachable(whose, "no answer in 15 minutes")) from None
        if any(not Path(fresh, name).exists() for name in digests):
            raise JarsMissingError(_unreachable(whose, _complaint(done)))
        for name, digest in digests.items():
            found = hashlib.sha256(Path(fresh, name).read_bytes()).hexdigest()
            if found != digest:
                raise JarsMissingError(
                    f"{name} has sha256 {found}, but the lock says {digest}: it is not used; try "
                    "again, or check what the network serves"
                )
        folder.mkdir(exist_ok=True)
        for name in digests:
            Path(fresh, name).replace(folder / name)


def _complaint(done: subprocess.CompletedProcess[str]) -> str:
    """Return Ivy's first error, or else its first warning."""
    for head in (":::: ERRORS", ":::: WARNINGS"):
        text = done.stdout.partition(head)[2].strip()
        if text:
            return text.splitlines()[0]
    return f"exit code {done.returncode}"


def _unreachable(whose: str, reason: str) -> str:
    return (
        f"{whose} jars are not cached in {cache_folder()}, and they could not be downloaded from "
        f"Maven Central ({reason}): run once with a network, or set MUSTER_CACHE to a filled cache"
    )


def java_command() -> str | None:
    """Return the java command: JAVA_HOME's, else the one on the path."""
    home = os.environ.get("JAVA_HOME")
    if home and Path(home, "bin", "java").exists():
        return str(Path(home, "bin", "java"))
    return shutil.which("java")


def main() -> int:
    """Install the jars, or print their paths with --print; exit with 1 and one line on failure."""
    try:
        if sys.argv[1:] == ["--print"]:
            print(",".join(map(str, delta_jars())))
        else:
            install()
    except JarsMissingError as error:
        print(f"muster: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
