"""access: who gets in, and what they may do: TLS, logins and access lists, from their files."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

from coordinator.acls import Acls, parse_acls
from coordinator.config import ConfigError, ServerConfig
from coordinator.wire.sasl import MECHANISMS, Login, Users


class Access:
    """Who gets in, and what they may do, as it is configured.

    Attributes
    ----------
    tls
        What connections are encrypted with; None: they are not.
    users
        Who may log in; None: nobody has to.
    acls
        What each may do; None: everybody everything.

    Raises
    ------
    ConfigError
        A file or mechanism that cannot be used, or one that is missing.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        _refuse_contradictions(config)
        self.tls = _tls(config)
        self.users = Users.read(config.sasl_users) if config.sasl_users else None
        self.acls = _acls(config.acls) if config.acls else None

    @property
    def safe(self) -> bool:
        """Whether nobody can listen in, and everybody shows who they are."""
        return self.tls is not None and _knows_clients(self._config)

    @property
    def login(self) -> Callable[[], Login] | None:
        """What makes each connection's login; None where there is none."""
        return None if self.users is None else self._login

    def _login(self) -> Login:
        assert self.users is not None
        return Login(self.users, self._config.sasl_mechanisms)


def _knows_clients(config: ServerConfig) -> bool:
    return bool(config.sasl_mechanisms or config.tls_client_ca)


def _refuse_contradictions(config: ServerConfig) -> None:
    """Refuse settings of which one needs another."""
    if not config.tls_certificate and (config.tls_key or config.tls_client_ca):
        raise ConfigError("server.tls_certificate is missing: give the PEM file of it")
    unknown = sorted(set(config.sasl_mechanisms) - set(MECHANISMS))
    if unknown:
        raise ConfigError(
            f"server.sasl_mechanisms has {unknown[0]!r}: the known ones are {', '.join(MECHANISMS)}"
        )
    if config.sasl_users and not config.sasl_mechanisms:
        raise ConfigError("server.sasl_mechanisms is empty: name one for server.sasl_users")
    if config.sasl_mechanisms and not config.sasl_users:
        raise ConfigError("server.sasl_users is missing: give the file of users")
    if _knows_clients(config) and not config.acls:
        raise ConfigError(
            "server.acls is missing: without it nobody who logs in may do anything: give a file of "
            "access lists, as conf/acls.toml"
        )


def _tls(config: ServerConfig) -> ssl.SSLContext | None:
    if not config.tls_certificate:
        return None
    try:
        context = ssl.create_default_context(
            ssl.Purpose.CLIENT_AUTH, cafile=config.tls_client_ca or None
        )
        context.load_cert_chain(config.tls_certificate, config.tls_key or None)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(
            f"server.tls_certificate, tls_key or tls_client_ca cannot be used: {error}"
        ) from None
    if config.tls_client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _acls(path: str) -> Acls:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"server.acls {path} cannot be read: {error}") from None
    return parse_acls(text, path)
