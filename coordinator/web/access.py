"""Who may see a page, and change what: the logins and access lists of the coordinator.

A page says which groups there are, so it is for loopback, or for those who log in. A browser lets
any site send requests to loopback, so the name that a request is sent to counts as well.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from coordinator.config import Config, ConfigError, ServerConfig
from coordinator.wire.access import (
    Access,
    HttpLogins,
    ReloadingFile,
    parse_basic,
    tls_files,
    warn_of_readers,
)
from coordinator.wire.acls import CLUSTER, Acls, Operation, Resource, ResourceType, normalize_host
from coordinator.wire.listener import is_loopback, names_loopback, parse_address
from coordinator.wire.oauth.tokens import TokenError, TokenRules
from coordinator.wire.sasl import Users
from coordinator.wire.session import ANONYMOUS

SETTING = "web.listen (--web, --listen)"
BASIC, BEARER = 'Basic realm="muster", charset="UTF-8"', 'Bearer realm="muster"'
SAME_ORIGIN = {"same-origin", "none"}
logger = logging.getLogger("muster.web")


@dataclass(frozen=True, slots=True)
class Viewer:
    """The viewer of a page, and its address.

    Attributes
    ----------
    principal
        `User:` and a name.
    logged_in
        Whether a password or a token was given. Without one, a viewer changes nothing.
    ends
        When the token expires, in seconds since 1970.
    """

    principal: str
    host: str
    logged_in: bool
    access: WebAccess
    ends: float | None = None

    def sees(self, group_id: str) -> bool:
        """Whether this one may see a group: DESCRIBE on it, as of ConsumerGroupDescribe."""
        return self._may(Operation.DESCRIBE, Resource(ResourceType.GROUP, group_id))

    def sees_topics(self, names: Iterable[str]) -> bool:
        """Whether this viewer may see these topics: DESCRIBE on each of them."""
        return all(
            self._may(Operation.DESCRIBE, Resource(ResourceType.TOPIC, name)) for name in names
        )

    @property
    def sees_all(self) -> bool:
        """Whether this one may list all groups: DESCRIBE on the cluster, as of ListGroups."""
        return self._may(Operation.DESCRIBE, CLUSTER)

    @property
    def sees_audit(self) -> bool:
        """Whether this one may see who was refused what: as all groups."""
        return self.access.acls is None or self.sees_all

    def sees_settings(self, group_id: str) -> bool:
        """Whether this one may see a group's settings: DESCRIBE_CONFIGS, as of DescribeConfigs."""
        return self._may(Operation.DESCRIBE_CONFIGS, Resource(ResourceType.GROUP, group_id))

    def decides(self, group_id: str) -> bool:
        """Whether this one may decide plans: with a login, and ALTER_CONFIGS on the group."""
        of_group = Resource(ResourceType.GROUP, group_id)
        return self.logged_in and self._may(Operation.ALTER_CONFIGS, of_group)

    def is_known(self) -> bool:
        """Whether the login still counts: users and access lists may have been read again."""
        if not self.access.asks_for_login:
            return True
        if self.ends is not None:
            return time.time() < self.ends
        known = self.access.users or ()
        return self.logged_in and self.principal.removeprefix("User:") in known

    def _may(self, operation: Operation, of: Resource) -> bool:
        acls = self.access.acls
        return acls is None or acls.allows(self.principal, self.host, operation, of)


class WebAccess:
    """Logins, access lists and TLS of the pages, as configured.

    Raises
    ------
    ConfigError
        A file cannot be used, or the address is not safe to open.
    """

    def __init__(self, config: Config, listen: str) -> None:
        server = config.server
        files = tls_files("web.tls", server, wanted=config.web.tls)
        # Browsers have no client certificates.
        plain = replace(server, tls_client_ca="", tls_certificate="", tls_key="")
        self._access = Access(plain, config.oauth)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if files else None
        self._tls = ReloadingFile("web.tls", files, lambda: _load_certificate(context, *files))
        self.host, _ = parse_address(listen, SETTING)
        self._passwords = ThreadPoolExecutor(1, "muster-web-login")
        self.logins = HttpLogins(time.monotonic)
        self._refuse_open(server, listen)

    @property
    def users(self) -> Users | None:
        """Who may log in; None without logins."""
        return self._access.users

    @property
    def tokens(self) -> TokenRules | None:
        """Who may be here with a token; None where no one may."""
        return self._access.tokens

    @property
    def asks_for_login(self) -> bool:
        """Whether pages are only for those who log in."""
        return self._access.login is not None

    @property
    def challenge(self) -> str:
        """How one may log in, as HTTP says it."""
        ways = {BASIC: self.users, BEARER: self.tokens}
        return ", ".join(way for way, known in ways.items() if known is not None)

    @property
    def acls(self) -> Acls | None:
        """The access lists; None allows everyone everything."""
        return self._access.acls

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The TLS context of the pages, the same one for good; None without TLS."""
        return self._tls.value

    def reload(self) -> None:
        """Read the files again that have changed; new connections have the new certificate."""
        self._tls.reload()
        self._access.reload()

    def close(self) -> None:
        """End the thread that checks passwords."""
        self._passwords.shutdown(wait=False, cancel_futures=True)

    async def identify(self, authorization: str, client: str) -> Viewer | None:
        """Return who sends a request; None if the login is missing or wrong.

        Parameters
        ----------
        authorization
            The header of the request.
        client
            The address that it comes from.
        """
        host, users = normalize_host(client), self.users
        if not self.asks_for_login:
            return Viewer(ANONYMOUS, host, logged_in=False, access=self)
        scheme, _, word = authorization.partition(" ")
        if scheme.lower() == "bearer" and self.tokens is not None:
            return await self._identify_token(word.strip(), host, self.tokens)
        if users is None:
            return None
        name, password = parse_basic(authorization)
        known = self.logins.knows(users, name, password, host)
        if known is None:  # hashing takes a while: in one thread, so that guesses cost only that
            loop = asyncio.get_running_loop()
            check = users.check_password
            known = await loop.run_in_executor(self._passwords, check, name, password)
            if not known:
                self.logins.note(name, host)
        return Viewer(f"User:{name}", host, logged_in=True, access=self) if known else None

    async def _identify_token(self, text: str, host: str, rules: TokenRules) -> Viewer | None:
        """Return who a token names; None if it is refused, or its address has guessed too often."""
        if self.logins.is_held_back(host):
            return None
        loop = asyncio.get_running_loop()
        try:
            token = await loop.run_in_executor(self._passwords, rules.check, text)
        except TokenError as error:
            logger.warning("a token over HTTP from %s is refused: %s", host, error)
            self.logins.note("", host)
            return None
        return Viewer(f"User:{token.name}", host, logged_in=True, access=self, ends=token.ends)

    def is_ours(self, host_header: str) -> bool:
        """Whether a request was sent to a name of ours, as far as the page is open to all."""
        closed = self.asks_for_login or not is_loopback(self.host)
        return closed or names_loopback(host_header)

    def _refuse_open(self, server: ServerConfig, listen: str) -> None:
        """Refuse an address that listens beyond this machine without a login, or without TLS."""
        if is_loopback(self.host):
            return
        what = f"{SETTING} {listen} listens beyond this machine"
        lacks = []
        if not self.asks_for_login:
            lacks.append("a login (server.sasl_mechanisms, sasl_users, acls)")
        if self.tls is None:
            lacks.append("TLS (web.tls, server.tls_certificate)")
        if lacks and not server.insecure:
            raise ConfigError(
                f"{what}: configure {' and '.join(lacks)}, listen on 127.0.0.1, or pass --insecure "
                f"(server.insecure)"
            )
        if not self.asks_for_login:
            logger.warning("%s without a login: anyone who can reach it sees all groups", what)
        elif lacks:
            logger.warning("%s without TLS: passwords can be read", what)


def _load_certificate(
    context: ssl.SSLContext | None, certificate: str = "", key: str = ""
) -> ssl.SSLContext | None:
    if context is not None:
        try:
            context.load_cert_chain(certificate, key or None)
            warn_of_readers("server.tls_key", key or certificate)
        except OSError as error:  # ssl.SSLError is one
            raise ConfigError(
                f"server.tls_certificate or tls_key cannot be used: {error}"
            ) from None
    return context


def is_same_origin(host: str, origin: str | None, fetch_site: str | None) -> bool:
    """Whether a page of ours sent a form, as far as the browser says: a login is sent for any."""
    if fetch_site is not None and fetch_site not in SAME_ORIGIN:
        return False
    return origin is not None and origin.partition("://")[2] == host
