"""How to reach a Kafka cluster: settings of a client, in librdkafka's names, as for its topics."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import NamedTuple

from coordinator.config import KAFKA, ConfigError
from coordinator.member.client_tokens import ClientCredentials, Login
from coordinator.member.kafka import parse_addresses
from coordinator.wire.oauth.tokens import OAUTHBEARER
from coordinator.wire.sasl import MECHANISMS

PROTOCOLS = {
    "PLAINTEXT": (False, False),
    "SSL": (True, False),
    "SASL_PLAINTEXT": (False, True),
    "SASL_SSL": (True, True),
}
"""Whether a connection is over TLS, and whether it logs in."""
KNOWN = frozenset(
    {
        "security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password",
        "ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password",
        "ssl.endpoint.identification.algorithm", "client.id",
        "sasl.oauthbearer.method", "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.scope",
    }
)  # fmt: skip


class ClientSettings(NamedTuple):
    """What a connection needs.

    Attributes
    ----------
    servers
        (host, port) of brokers to ask first.
    tls
        None: plain.
    login
        (mechanism, user, password), or what gets tokens; None: none.
    """

    servers: list[tuple[str, int]]
    tls: ssl.SSLContext | None
    login: Login | None
    client_id: str

    @classmethod
    def read(
        cls,
        servers: str,
        settings: Mapping[str, str],
        name: str = "watch.kafka",
        client_id: str = "muster-watch",
    ) -> ClientSettings:
        """Return the settings of a client.

        Parameters
        ----------
        name
            Of the setting that has them, for messages.
        client_id
            Where they have none.

        Raises
        ------
        ConfigError
            An address, a name or a value is invalid; the message names it.
        """
        try:
            addresses = parse_addresses(servers.removeprefix(KAFKA))
        except ValueError as error:
            raise ConfigError(f"{servers}: {error}, as in kafka://broker:9092") from None
        tls, login = read_access(settings, name)
        return cls(addresses, tls, login, settings.get("client.id", client_id))


def read_access(
    settings: Mapping[str, str], name: str
) -> tuple[ssl.SSLContext | None, Login | None]:
    """Return the TLS and the login of a client's settings, None where it has none.

    Parameters
    ----------
    name
        Of the setting that has them, for messages.

    Raises
    ------
    ConfigError
        A name or a value is invalid; the message names it.
    """
    if unknown := settings.keys() - KNOWN:
        raise ConfigError(
            f"{name} has {min(unknown)!r}: give settings of {', '.join(sorted(KNOWN))}"
        )
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(f"{name}: security.protocol is {protocol!r}: give {', '.join(PROTOCOLS)}")
    with_tls, with_login = PROTOCOLS[protocol]
    tls = _open_tls(settings, name) if with_tls else None
    return tls, _read_login(settings, name) if with_login else None


def _open_tls(settings: Mapping[str, str], name: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.get("ssl.ca.location"))
        if certificate := settings.get("ssl.certificate.location"):
            key = settings.get("ssl.key.location")
            context.load_cert_chain(certificate, key, settings.get("ssl.key.password"))
    except OSError as error:
        raise ConfigError(
            f"{name}: the certificates (ssl.*.location) cannot be read: {error}"
        ) from None
    if settings.get("ssl.endpoint.identification.algorithm", "https") in {"", "none"}:
        context.check_hostname = False
    return context


def _read_login(settings: Mapping[str, str], name: str) -> Login:
    mechanism = settings.get("sasl.mechanism") or settings.get("sasl.mechanisms", "")
    if mechanism == OAUTHBEARER:
        return _read_credentials(settings, name)
    if mechanism not in MECHANISMS:
        known = ", ".join((*MECHANISMS, OAUTHBEARER))
        raise ConfigError(f"{name}: sasl.mechanism is {mechanism!r}: give one of {known}")
    for one in ("sasl.username", "sasl.password"):
        if not settings.get(one):
            raise ConfigError(f"{name}: {one} is missing: give it, or another protocol")
    return mechanism, settings["sasl.username"], settings["sasl.password"]


def _read_credentials(settings: Mapping[str, str], name: str) -> ClientCredentials:
    """Return what gets tokens, by librdkafka's settings for its method `oidc`."""
    prefix = "sasl.oauthbearer"
    if settings.get(f"{prefix}.method", "oidc").lower() != "oidc":
        raise ConfigError(f"{name}: {prefix}.method is not oidc: omit it")
    for one in ("token.endpoint.url", "client.id", "client.secret"):
        if not settings.get(f"{prefix}.{one}"):
            raise ConfigError(f"{name}: {prefix}.{one} is missing: {OAUTHBEARER} needs it")
    try:
        return ClientCredentials(
            settings[f"{prefix}.token.endpoint.url"],
            settings[f"{prefix}.client.id"],
            settings[f"{prefix}.client.secret"],
            settings.get(f"{prefix}.scope", ""),
        )
    except ValueError as error:
        raise ConfigError(f"{name}: {prefix}.token.endpoint.url: {error}") from None
