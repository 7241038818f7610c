"""`muster serve --processes N`: nodes of one machine, each in a process of its own."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from coordinator.cli.main import BAD_INPUT
from coordinator.cli.service import LOOK_S, Stop
from coordinator.config import Config, ConfigError
from coordinator.storage.record_log import LogError

OPTION = "--processes"
PARENT = "MUSTER_PARENT"
"""The id of the process that started a node."""
PROCESSES_LEAST = 2
PORT_MAX = 65_535
RESTART_S = 1.0, 30.0
"""How long a node that ended is waited with: at first, and at most, twice as long each time."""
STEADY_S = 60.0
"""A node that lived for so long is started again as if it was the first time."""
logger = logging.getLogger("muster.coordinator")


@dataclass(slots=True)
class _Process:
    """One node.

    Attributes
    ----------
    running
        None while it waits to be started.
    due_s, wait_s
        When it is started next, and how long the wait before was.
    """

    command: list[str]
    running: subprocess.Popen[bytes] | None = None
    since_s: float = 0.0
    due_s: float = 0.0
    wait_s: float = field(default=RESTART_S[0] / 2)

    def start(self, now_s: float) -> None:
        """Start it."""
        known = os.environ | {PARENT: str(os.getpid())}
        self.running = subprocess.Popen(self.command, env=known)  # noqa: S603 - our own
        self.since_s = now_s


def check_processes(count: int, settings: Config, store: str | None) -> None:
    """Refuse processes that cannot be nodes of one store.

    Raises
    ------
    ConfigError
        The store is missing, or the processes are fewer than two, or more than there are ports.
    """
    if count < PROCESSES_LEAST:
        raise ConfigError(f"{OPTION} is {count}: give {PROCESSES_LEAST} or more, or leave it out")
    if store is None:
        raise ConfigError(f"{OPTION} {count} needs a store of shards: give --store and --shards")
    for address in _addresses(settings).values():
        _shift(address, count - 1)


def run_processes(count: int, settings: Config, words: Sequence[str]) -> None:
    """Have so many nodes until a signal ends them; one that ends by itself is started again.

    The first has the node id and the addresses of the settings, each one after it the next.

    Parameters
    ----------
    words
        Of the command, without its name.

    Raises
    ------
    LogError
        A node was refused, for the reason that it printed.
    """
    stop = Stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop.ask)
    nodes = [_Process(_command(settings, words, at)) for at in range(count)]
    signal.signal(signal.SIGHUP, lambda *_: _signal(nodes, signal.SIGHUP))
    try:
        while not stop.is_set():
            for node in nodes:
                _keep(node, time.monotonic())
            stop.wait(LOOK_S)
        logger.info("stopped by %s", stop.asked_by)
    finally:
        _signal(nodes, signal.SIGTERM)
        for node in nodes:
            if node.running is not None:
                node.running.wait()


def end_with_parent() -> None:
    """End as by SIGTERM once the process is gone that started this one as a node.

    If that was killed, the same command would otherwise find its ports taken.
    """
    parent = os.environ.pop(PARENT, "")
    if not parent:
        return

    def watch() -> None:
        while str(os.getppid()) == parent:
            time.sleep(LOOK_S)
        logger.warning("the process %s that started this node is gone", parent)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="muster-parent", daemon=True).start()


def _keep(node: _Process, now_s: float) -> None:
    """Start a node that has ended, after a wait."""
    if node.running is None:
        if now_s >= node.due_s:
            node.start(now_s)
        return
    code = node.running.poll()
    if code is None:
        return
    if code == BAD_INPUT:
        raise LogError("a node was refused (see above), so all end: start them again without it")
    if now_s - node.since_s >= STEADY_S:
        node.wait_s = RESTART_S[0] / 2
    node.wait_s = min(2 * node.wait_s, RESTART_S[1])
    node.running, node.due_s = None, now_s + node.wait_s
    logger.warning("a node ended with code %d: starting it again in %g s", code, node.wait_s)


def _signal(nodes: Sequence[_Process], number: signal.Signals) -> None:
    for node in nodes:
        if node.running is not None and node.running.poll() is None:
            node.running.send_signal(number)


def _command(settings: Config, words: Sequence[str], at: int) -> list[str]:
    """Return the command of a node: of a repeated option the last one counts."""
    kept, skip = [], False
    for word in words:
        if not skip and word != OPTION and not word.startswith(f"{OPTION}="):
            kept.append(word)
        skip = word == OPTION
    own = [f"--node={settings.server.node_id + at}"]
    own += [f"{name}={_shift(one, at)}" for name, one in _addresses(settings).items()]
    return [sys.executable, "-m", "coordinator", *kept, *own]


def _addresses(settings: Config) -> dict[str, str]:
    """Return the addresses that a node has, by their options."""
    server = settings.server
    found = {"--listen": server.listen, "--advertised": server.advertised}
    found |= {"--http": server.http_listen, "--web": settings.web.listen}
    return {name: address for name, address in found.items() if address}


def _shift(address: str, by: int) -> str:
    """Return an address whose port is so many later; 0 stays any port."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise ConfigError(f"{address!r} has no port: give host:port")
    number = int(port) and int(port) + by
    if number > PORT_MAX:
        raise ConfigError(
            f"{OPTION}: node {by + 1} of them would be at port {number}: give a lower port "
            f"than {port}"
        )
    return f"{host}:{number}"
