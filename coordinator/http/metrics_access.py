"""Authorize requests for metrics."""

from __future__ import annotations

import logging
import ssl
import time
from dataclasses import replace
from http import HTTPStatus
from typing import NamedTuple

from coordinator.config import ServerConfig
from coordinator.wire.access import (
    HttpLogins,
    ReloadingFile,
    load_tls,
    parse_basic,
    read_users,
    tls_files,
)
from coordinator.wire.listener import is_loopback, names_loopback, parse_address

TEXT = "text/plain; charset=utf-8"
FOREIGN_NAME = (
    "metrics are open only to this machine, under the names localhost, 127.0.0.1 and [::1]: for "
    "other names, configure a login (server.http_users)"
)
logger = logging.getLogger("muster.wire")


class Page(NamedTuple):
    """A response: status, content type, body, and further headers."""

    code: HTTPStatus
    kind: str
    body: bytes
    head: str = ""


class PageAccess:
    """The TLS and the users of the HTTP pages, as configured."""

    def __init__(self, config: ServerConfig) -> None:
        host, _ = parse_address(config.http_listen, "server.http_listen")
        here = is_loopback(host)
        of_server = replace(config, tls_client_ca="")  # probes have no client certificates
        self._tls = ReloadingFile(
            "server.http_tls",
            tls_files("server.http_tls", config, wanted=config.http_tls),
            lambda: load_tls(of_server) if config.http_tls else None,
        )
        path, iterations = config.http_users, config.scram_iterations
        self._users = ReloadingFile(
            "server.http_users",
            (path,),
            lambda: read_users(path, iterations, "server.http_users") if path else None,
        )
        self.logins = HttpLogins(time.monotonic)
        self._here = here
        self._open = here or config.insecure
        where = f"server.http_listen {config.http_listen} listens beyond this machine"
        if here:
            return
        if not config.http_users and not config.insecure:
            logger.warning(
                "%s without a login (server.http_users): only /healthz and /readyz are served "
                "there, not /metrics, because it names groups; --insecure (server.insecure) "
                "serves it to anyone",
                where,
            )
        elif not config.http_users:
            logger.warning("%s without a login: anyone who can reach it sees the groups", where)
        elif not config.http_tls:
            logger.warning("%s without TLS (server.http_tls): passwords can be read", where)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The TLS context of the pages; None without TLS."""
        self._tls.reload()
        return self._tls.value

    def refuse(self, login: str, host: str = "", name: str = "") -> Page | None:
        """Return the page that refuses metrics to a client, or None if it may read them.

        Parameters
        ----------
        login
            The header Authorization.
        host
            Where the client is.
        name
            The header Host: the name by which a browser reached this server.
        """
        self._users.reload()
        users = self._users.value
        if users is None:
            if self._here and name and not names_loopback(name):
                return text_page(HTTPStatus.MISDIRECTED_REQUEST, FOREIGN_NAME)
            if self._open:
                return None
            why = "metrics are not served beyond this machine: configure server.http_users"
            return text_page(HTTPStatus.FORBIDDEN, why)
        user, password = parse_basic(login)
        known = self.logins.knows(users, user, password, host)
        if known is None:
            known = users.check_password(user, password)
            if not known:
                self.logins.note(user, host)
        if known:
            return None
        page = text_page(HTTPStatus.UNAUTHORIZED, "log in as a user of server.http_users")
        return page._replace(head='WWW-Authenticate: Basic realm="muster", charset="UTF-8"\r\n')


def text_page(code: HTTPStatus, text: str) -> Page:
    """Return a page of one line."""
    return Page(code, TEXT, f"{text}\n".encode())
