"""A network between clients and a server, which can be cut."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


def free_port() -> int:
    """Return a port of this machine that no one has now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


class Proxy:
    """A network between clients and a server; while it is cut, bytes wait, both ways.

    Attributes
    ----------
    address
        Where clients connect to, as host:port.
    whole
        Clear while it is cut.
    """

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listening.getsockname()[1]}"
        self.whole = threading.Event()
        self.whole.set()
        self.sockets = [self.listening]

    def begin(self, target: tuple[str, int]) -> None:
        """Bring all connections to a server, which may be started later."""
        threading.Thread(target=self._accept, args=(target,), daemon=True).start()

    def close(self) -> None:
        """End all connections."""
        self.whole.set()
        for one in self.sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self, target: tuple[str, int]) -> None:
        with suppress(OSError):
            while True:
                near = self.listening.accept()[0]
                try:
                    far = socket.create_connection(target)
                except OSError:  # no server is there
                    near.close()
                    continue
                self.sockets = [one for one in self.sockets if one.fileno() >= 0] + [near, far]
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self.whole.wait()
                to.sendall(data)
        with suppress(OSError):
            to.shutdown(socket.SHUT_RDWR)
        source.close()  # the other end ends as well, and closes its own
