"""TLS, logins and access lists, read from their files and read again when they change.

Metrics and pages, over HTTP, share what is done about logins there.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import ssl
import stat
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from coordinator.config import ConfigError, OAuthConfig, ServerConfig
from coordinator.core.state.records import Audited
from coordinator.wire.acceptor import network_of
from coordinator.wire.acls import Acls, parse_acls
from coordinator.wire.client_warnings import SAY_AGAIN_S
from coordinator.wire.oauth.token_login import TokenLogin
from coordinator.wire.oauth.tokens import OAUTHBEARER, TokenRules
from coordinator.wire.quotas import Quota
from coordinator.wire.refusal_audit import RefusalCounter
from coordinator.wire.sasl import MECHANISMS, Login, Users, check_iterations
from coordinator.wire.session import Session

GUESSES_PER_S, HOSTS_MAX = 1, 1_000
"""An address (of IPv6 a network, /64) may guess so often, and ten times as often at first: a
hundred thousand guesses of a password take a day."""
NO_TOKENS, NO_USERS = OAuthConfig(), Users({})
logger = logging.getLogger("muster.wire")


class FileStamp(NamedTuple):
    """What tells one state of a file from another."""

    at_ns: int
    size: int
    inode: int


Value = TypeVar("Value")
Stamps: TypeAlias = list[FileStamp | None]


class ReloadingFile(Generic[Value]):
    """A file's content, reloaded when the file changes; an invalid file changes nothing.

    Attributes
    ----------
    value
        As it was read last.
    """

    def __init__(self, setting: str, paths: Sequence[str], read: Callable[[], Value]) -> None:
        self._setting = setting
        self._paths = [path for path in paths if path]
        self._read = read
        self._stamp = self._stamp_files()
        self._error = ""
        self.value = read()

    def reload(self, *, always: bool = False) -> bool:
        """Read what has changed, or in any case; returns whether there is a new value.

        What could not be read is tried each time: nothing says when a file may be read again.
        """
        stamp = self._stamp_files()
        changed = stamp != self._stamp
        if not (changed or always or self._error):
            return False
        self._stamp = stamp  # before it is read: what changes meanwhile is seen the next time
        try:
            value = self._read_unchanged(stamp)
        except ConfigError as error:
            if changed or always or self._error != str(error):
                logger.error("the previous content stays in force: %s", error)  # noqa: TRY400
            self._error = str(error)
            return False
        self.value, self._error = value, ""
        logger.info("%s was reread", self._setting)
        return True

    def _read_unchanged(self, stamp: Stamps) -> Value:
        """Read the files; refuse one that is being written: empty, or changed meanwhile."""
        for path, of_one in zip(self._paths, stamp, strict=True):
            if of_one is not None and of_one.size == 0:
                raise ConfigError(
                    f"{self._setting} {path} is empty: perhaps it is still being written"
                )
        value = self._read()
        if self._stamp_files() != stamp:
            raise ConfigError(f"{self._setting} changed while it was read: retrying soon")
        return value

    def _stamp_files(self) -> Stamps:
        """Return the stamp of each file; a replaced file has another one."""
        return [_stamp_file(path) for path in self._paths]


class Access:
    """TLS, logins and access lists as configured, with the current content of their files.

    Raises
    ------
    ConfigError
        A file or mechanism that cannot be used, or one that is missing.
    """

    def __init__(self, config: ServerConfig, oauth: OAuthConfig = NO_TOKENS) -> None:
        self._config = config
        _refuse_contradictions(config)
        self.tokens = TokenRules(oauth) if OAUTHBEARER in config.sasl_mechanisms else None
        """Who else may log in; None without tokens."""
        tls = (config.tls_certificate, config.tls_key, config.tls_client_ca)
        self._tls = ReloadingFile("server.tls_certificate", tls, lambda: load_tls(config))
        users, iterations = config.sasl_users, config.scram_iterations
        self._users = ReloadingFile(
            "server.sasl_users",
            (users,),
            lambda: read_users(users, iterations, "server.sasl_users") if users else None,
        )
        self._acls = ReloadingFile(
            "server.acls", (config.acls,), lambda: _read_acls(config.acls) if config.acls else None
        )

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The TLS context of new connections; None without TLS."""
        return self._tls.value

    @property
    def users(self) -> Users | None:
        """The users who may log in with a password; None where no one may."""
        return self._users.value

    @property
    def acls(self) -> Acls | None:
        """The access lists; None allows everyone everything."""
        return self._acls.value

    @property
    def safe(self) -> bool:
        """Whether connections are encrypted and clients authenticated."""
        return self.tls is not None and _knows_clients(self._config)

    @property
    def login(self) -> Callable[[], Login] | None:
        """Makes the login of a connection; None without logins."""
        return None if self.users is None and self.tokens is None else self._login

    def reload(self, *, always: bool = False) -> bool:
        """Read the files again that have changed, or all; returns whether users have."""
        self._tls.reload(always=always)
        self._acls.reload(always=always)
        return self._users.reload(always=always)

    def _login(self) -> Login:
        named = self._config.sasl_mechanisms
        if self.tokens is None:
            return Login(self._current_users, named)
        return TokenLogin(self._current_users, named, rules=self.tokens)

    def _current_users(self) -> Users:
        return self.users or NO_USERS


def _stamp_file(path: str) -> FileStamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return FileStamp(found.st_mtime_ns, found.st_size, found.st_ino)


def _knows_clients(config: ServerConfig) -> bool:
    return bool(config.sasl_mechanisms or config.tls_client_ca)


def _refuse_contradictions(config: ServerConfig) -> None:
    """Refuse settings of which one needs another."""
    if not config.tls_certificate and (config.tls_key or config.tls_client_ca):
        raise ConfigError("server.tls_certificate is missing: give the PEM file of it")
    known = (*MECHANISMS, OAUTHBEARER)
    unknown = sorted(set(config.sasl_mechanisms) - set(known))
    if unknown:
        raise ConfigError(
            f"server.sasl_mechanisms has {unknown[0]!r}: the known ones are {', '.join(known)}"
        )
    check_iterations(config.scram_iterations, "server.scram_iterations")
    with_password = set(config.sasl_mechanisms) & set(MECHANISMS)
    if config.sasl_users and not config.sasl_mechanisms:
        raise ConfigError("server.sasl_mechanisms is empty: name one for server.sasl_users")
    if config.sasl_users and not with_password:
        raise ConfigError(
            f"server.sasl_mechanisms has only {OAUTHBEARER}, which reads no server.sasl_users: "
            "omit them, or name another mechanism too"
        )
    if with_password and not config.sasl_users:
        raise ConfigError("server.sasl_users is missing: give the file of users")
    if _knows_clients(config) and not config.acls:
        raise ConfigError(
            "server.acls is missing: without it no one who logs in may do anything: give a file of "
            "access lists, as conf/acls.toml"
        )


def read_users(path: str, iterations: int, setting: str) -> Users:
    """Return the users of a file; warn if every user of the machine can read passwords in it."""
    users = Users.read(path, iterations, setting)
    if users.have_passwords:
        warn_of_readers(setting, path)
    return users


@cache  # one warning in the life of a process, however often a file is read
def warn_of_readers(setting: str, path: str) -> None:
    """Warn if every user of this machine can read a file of secrets."""
    place = Path(os.path.realpath(path))
    try:
        is_open = place.stat().st_mode & stat.S_IROTH and all(
            folder.stat().st_mode & stat.S_IXOTH for folder in place.parents
        )
    except OSError:
        return  # the user of the file reports what is wrong
    if is_open:
        logger.warning(
            "%s %s has secrets that every user of this machine can read: chmod o-r %s",
            *(setting, path, path),
        )


def load_tls(config: ServerConfig) -> ssl.SSLContext | None:
    """Return TLS as it is configured; None without a certificate."""
    if not config.tls_certificate:
        return None
    try:
        context = ssl.create_default_context(
            ssl.Purpose.CLIENT_AUTH, cafile=config.tls_client_ca or None
        )
        context.load_cert_chain(config.tls_certificate, config.tls_key or None)
        warn_of_readers("server.tls_key", config.tls_key or config.tls_certificate)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(
            f"server.tls_certificate, tls_key or tls_client_ca cannot be used: {error}"
        ) from None
    if config.tls_client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _read_acls(path: str) -> Acls:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigError(f"server.acls {path} cannot be read: {error}") from None
    return parse_acls(text, path)


def tls_files(setting: str, server: ServerConfig, *, wanted: bool) -> tuple[str, ...]:
    """Return the certificate and the key to serve with; none without TLS.

    Parameters
    ----------
    setting
        What turns TLS on.

    Raises
    ------
    ConfigError
        The certificate is missing.
    """
    if wanted and not server.tls_certificate:
        raise ConfigError(
            f"{setting} is on, but server.tls_certificate is empty: name the PEM file"
        )
    return (server.tls_certificate, server.tls_key) if wanted else ()


def parse_basic(authorization: str) -> tuple[str, str]:
    """Return the name and password of HTTP's Basic login; "" and "" without one."""
    scheme, _, words = authorization.partition(" ")
    try:
        credentials = base64.b64decode(words.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        credentials = ""
    name, _, password = credentials.partition(":")
    return (name, password) if scheme.lower() == "basic" else ("", "")


class HttpLogins:
    """Logins over HTTP, and what is done about wrong ones; for one thread.

    Parameters
    ----------
    clock
        Seconds, from any beginning.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counter = RefusalCounter()
        self._guesses = Quota(GUESSES_PER_S, {})
        self._logged: OrderedDict[str, float] = OrderedDict()

    def knows(self, users: Users, name: str, password: str, host: str) -> bool | None:
        """Whether a user is let in; None if the password must be checked, which takes a while.

        If it is wrong then, `note` it.
        """
        if not name:
            return False
        if users.is_remembered(name, password):
            return True
        return False if self.is_held_back(host) else None

    def is_held_back(self, host: str) -> bool:
        """Whether an address has guessed too often lately: its next guess is not looked at."""
        return self._guesses.charge(network_of(host), 0, self._clock()) > 0

    def note(self, name: str, host: str) -> None:
        """Note a wrong login: a line of the log a minute and address, and a count for the audit."""
        now, network = self._clock(), network_of(host)
        self._guesses.charge(network, 1, now)
        if now - self._logged.get(network, -SAY_AGAIN_S) >= SAY_AGAIN_S:
            self._logged[network] = now
            logger.warning("a login over HTTP from %s as %r was wrong", host, name[:80])
            if len(self._logged) > HOSTS_MAX:
                self._logged.popitem(last=False)
        self._counter.note_login(f"User:{name}", Session(host=host, client_id="http"))

    def take(self) -> list[Audited]:
        """Return records of those noted so far, for the audit, and reset."""
        return self._counter.take()
