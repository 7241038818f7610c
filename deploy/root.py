"""Make the root of an image with one program in it: `python deploy/root.py ROOT VENV`.

What it takes from the system that runs it: this interpreter with its library, compiled, the shared
libraries that they and the environment VENV need, certificates, time zones and names of services.
No shell and no package manager. Of each Debian package of which there is a file, there are its
licence, and its entry where scanners of images look for it: `/var/lib/dpkg/status.d`.
"""

from __future__ import annotations

import compileall
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

BASE = Path(sys.base_prefix)
LIBRARY = BASE / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
LEFT_OUT = ("__pycache__", "_test*", "_tkinter*", "config-*", "ensurepip", "idlelib", "lib2to3",
            "site-packages", "test", "tests", "tkinter", "turtledemo", "*.a")  # fmt: skip
"""Of the interpreter's library."""
FILES = ("/etc/os-release", "/etc/protocols", "/etc/services", "/etc/ssl/certs/ca-certificates.crt",
         "/usr/share/zoneinfo")  # fmt: skip
WRITTEN = {
    "etc/passwd": "root:x:0:0::/:\nmuster:x:10001:10001::/var/lib/muster:\n",
    "etc/group": "root:x:0:\nmuster:x:10001:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
PACKAGES = ("base-files", "ca-certificates", "netbase", "tzdata")
"""Of which files are taken that no package owns, beside those that own a library."""


def put(source: Path, root: Path) -> None:
    """Copy a file or a folder to its own place below the root; links become what they name."""
    there = root / os.path.realpath(source.parent).lstrip("/") / source.name
    there.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        ignored = shutil.ignore_patterns("posix", "right")  # of zoneinfo: all of it once more
        shutil.copytree(source, there, ignore=ignored, dirs_exist_ok=True)
    elif source.exists():
        shutil.copy2(source, there)


def say(*words: object) -> str:
    """Return what a program says; one that fails for some of what it is asked says the rest."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    return str(done.stdout)


def find_libraries(root: Path) -> list[Path]:
    """Return the shared libraries of the system that what is in the root needs."""
    said = say("ldd", sys.executable, *(one for one in root.rglob("*.so*") if one.is_file()))
    found = {Path(one) for one in re.findall(r"^\s+(?:\S+ => )?(/\S+) \(0x", said, re.MULTILINE)}
    return sorted(one for one in found if not one.is_relative_to(root))


def add_packages(files: list[Path], root: Path) -> None:
    """State which Debian packages the files are of, where there are such."""
    if not shutil.which("dpkg-query"):
        return
    named = {str(file) for file in files} | {os.path.realpath(file) for file in files}
    owned = say("dpkg-query", "--search", *sorted(named))
    entries = root / "var/lib/dpkg/status.d"
    entries.mkdir(parents=True)
    for package in sorted({line.split(":")[0] for line in owned.splitlines()} | set(PACKAGES)):
        if entry := say("dpkg-query", "--status", package):
            (entries / package).write_text(entry, encoding="utf-8")
            licence = f"usr/share/doc/{package}/copyright"  # in a folder that may be a link
            (root / licence).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path("/", licence), root / licence)


def main() -> None:
    """Make it."""
    root, venv = Path(sys.argv[1]), Path(sys.argv[2])
    for name in ("lib", "lib64", "bin"):
        if Path("/", name).is_symlink():
            (root / "usr" / name).mkdir(parents=True, exist_ok=True)
            (root / name).symlink_to(f"usr/{name}")
    for name, mode in (("dev", 0o755), ("proc", 0o755), ("sys", 0o755), ("tmp", 0o1777)):
        (root / name).mkdir()
        (root / name).chmod(mode)
    (root / "var/lib/muster").mkdir(parents=True)
    library = root / str(LIBRARY)[1:]
    shutil.copytree(LIBRARY, library, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
    compileall.compile_dir(library, quiet=1, stripdir=root)
    put((venv / "bin/python").readlink(), root)
    shutil.copytree(venv, root / str(venv)[1:], symlinks=True)
    libraries = find_libraries(root)
    for file in (*libraries, *map(Path, FILES)):
        put(file, root)
    ours = [one for one in (root / str(BASE)[1:]).rglob("*.so*") if one.is_file()]
    say("strip", "--strip-unneeded", *ours)
    for name, text in WRITTEN.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    add_packages(libraries, root)


if __name__ == "__main__":
    main()
