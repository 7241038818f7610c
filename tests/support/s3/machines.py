"""Machines that share nothing but a network: namespaces of this one, for which one must be root."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

from tests.conftest import ROOT
from tests.support.processes import start

_numbers = itertools.count()
INSIDE = """
mount --bind "$2" /mnt && mount -t tmpfs none /tmp || exit
case "$2" in /tmp/*) mkdir -p "$2" && mount --bind /mnt "$2" || exit;; esac
hostname "$1" && cd /tmp && shift 2 && exec "$@"
"""
"""Hides what is in /tmp, but for a clone of the project there."""


def can_separate():
    """Whether this process may make namespaces here."""
    try:
        machine = Machine("probe")
    except (OSError, subprocess.CalledProcessError):
        return False
    machine.remove()
    return True


class Machine:
    """A network, a host name and a folder for temporary files of its own.

    It reaches this machine at `gateway`, and no other one.
    """

    def __init__(self, name):
        number = next(_numbers)
        self.name = f"muster-{os.getpid()}-{name}"
        self.gateway = f"10.231.{os.getpid() % 200}.{4 * number + 1}"
        own = f"10.231.{os.getpid() % 200}.{4 * number + 2}"
        link = f"mu{os.getpid()}-{number}"
        _ip("netns", "add", self.name)
        try:
            _ip("link", "add", link, "type", "veth", "peer", "eth0", "netns", self.name)
            _ip("addr", "add", f"{self.gateway}/30", "dev", link)
            _ip("link", "set", link, "up")
            _ip("-n", self.name, "addr", "add", f"{own}/30", "dev", "eth0")
            for there in ("lo", "eth0"):
                _ip("-n", self.name, "link", "set", there, "up")
        except BaseException:
            self.remove()
            raise

    def run(self, code, *words, **env):
        """Start a program of Python there; its process is the machine's."""
        command = ["ip", "netns", "exec", self.name, "unshare", "--mount", "--uts"]
        command += ["sh", "-c", INSIDE, "sh", self.name, str(ROOT)]
        command += [sys.executable, "-c", code, *words]
        bare = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        return start(
            command, env=bare | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def remove(self):
        """Remove it; what runs there keeps it until its end."""
        _ip("netns", "delete", self.name)


def _ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)
