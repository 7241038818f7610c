"""TLS, logins and access lists of a node: those of its cluster, from the metadata and the settings.

The metadata have the access lists and the verifiers of SCRAM. What brokers have in their own files
alone, as super users and the passwords of PLAIN, is given to the node by its settings.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from coordinator.config import Config, ConfigError, NodeConfig, OAuthConfig, ServerConfig
from coordinator.kraft.links import Links
from coordinator.kraft.metadata_image import BROKER, MetadataImage
from coordinator.kraft.registration import list_protocols
from coordinator.member.client_settings import PROTOCOLS, ClientSettings
from coordinator.wire.access import ReloadingFile, load_tls, read_users
from coordinator.wire.acls import (
    CLUSTER,
    OPERATIONS,
    Acl,
    Acls,
    Operation,
    Resource,
    ResourceType,
    normalize_host,
    parse_super_user,
)
from coordinator.wire.codec import Api
from coordinator.wire.oauth.token_login import TokenLogin
from coordinator.wire.oauth.tokens import OAUTHBEARER, TokenRules
from coordinator.wire.sasl import HASHES, MECHANISMS, PLAIN, Login, Users, Verifier

PROTOCOL_NAMES = tuple(PROTOCOLS)
"""By Kafka's number of a security protocol."""
SCRAM_NUMBERS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
LITERAL, PREFIXED, ALLOW = 3, 4, 3
"""Kafka's numbers of a pattern's type, and of the permission that allows."""
NO_USERS = Users({})
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


class ClusterUsers(Users):
    """Who may log in: by SCRAM who has a verifier in the metadata, by PLAIN who is in the file."""

    def __init__(
        self, verifiers: Mapping[str, Mapping[str, Verifier]], passwords: Callable[[], Users]
    ) -> None:
        super().__init__(verifiers)
        self._passwords = passwords

    def __contains__(self, name: object) -> bool:
        """Whether there is such a user."""
        return super().__contains__(name) or name in self._passwords()

    def is_remembered(self, name: str, password: str) -> bool:
        """Whether this password was verified before."""
        return self._passwords().is_remembered(name, password)

    def check_password(self, name: str, password: str) -> bool:
        """Whether this is the user's password in the file."""
        return self._passwords().check_password(name, password)


class ClusterAccess:
    """What a node asks of its clients, and lets them do.

    Parameters
    ----------
    protocols
        Kafka's number of each listener's security protocol, by the listener's name.
    has_authorizer
        Whether the brokers heed access lists at all.
    settings
        Those of the brokers, as far as they are known.

    Raises
    ------
    ConfigError
        A setting is missing that a listener needs, or is one that a node has no use for.
    """

    def __init__(
        self,
        server: ServerConfig,
        oauth: OAuthConfig,
        node: NodeConfig,
        protocols: Mapping[str, int],
        *,
        has_authorizer: bool,
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> None:
        names = {one: PROTOCOL_NAMES[number] for one, number in protocols.items()}
        self._needs = {one: PROTOCOLS[name] for one, name in names.items()}
        _check_settings(server, names)
        self._mechanisms = {
            listener: _choose_mechanisms(server, listener, settings)
            for listener, (_, with_login) in self._needs.items()
            if with_login
        }
        self._has_authorizer = has_authorizer
        self._super_users = [parse_super_user(one, "node.super_users") for one in node.super_users]
        self._otherwise = node.allow_everyone_if_no_acl_found
        self._tokens = TokenRules(oauth) if OAUTHBEARER in server.sasl_mechanisms else None
        with_tls = any(tls for tls, _ in self._needs.values())
        without_ca = replace(server, tls_client_ca="")
        files = (server.tls_certificate, server.tls_key, server.tls_client_ca)
        self._tls = ReloadingFile(
            "server.tls_certificate", files, lambda: load_tls(server) if with_tls else None
        )
        self._tls_before_login = ReloadingFile(
            "server.tls_certificate", files, lambda: load_tls(without_ca) if with_tls else None
        )
        users, iterations = server.sasl_users, server.scram_iterations
        self._passwords = ReloadingFile(
            "server.sasl_users",
            (users,),
            lambda: read_users(users, iterations, "server.sasl_users") if users else NO_USERS,
        )
        self._users = ClusterUsers({}, lambda: NO_USERS)
        self._acls: Acls | None = None
        self._seen: tuple[MetadataImage | None, int] = None, -1

    def update(self, image: MetadataImage) -> None:
        """Take the access lists and the verifiers of the metadata; one thread only may."""
        if self._seen == (image, image.access_changes):
            return
        self._seen = image, image.access_changes
        self._users = ClusterUsers(_read_verifiers(image), lambda: self._passwords.value)
        if self._has_authorizer:
            self._acls = read_acls(image, self._super_users, otherwise=self._otherwise)

    def tls_of(self, listener: str) -> Callable[[], ssl.SSLContext | None]:
        """Return what gives the TLS context of a listener's new connections."""
        with_tls, with_login = self._needs[listener]
        if not with_tls:
            return lambda: None
        return lambda: (self._tls_before_login if with_login else self._tls).value

    def login_of(self, listener: str) -> Callable[[], Login] | None:
        """Return what makes the login of a listener's connections; None without logins."""
        _, with_login = self._needs[listener]
        if not with_login:
            return None
        if self._tokens is None:
            return partial(Login, lambda: self._users, self._mechanisms[listener])
        named = self._mechanisms[listener]
        return partial(TokenLogin, lambda: self._users, named, rules=self._tokens)

    tls, login = None, None
    """Each listener has its own."""

    @property
    def users(self) -> Container[str]:
        """The users who may log in with a password."""
        return self._users

    @property
    def acls(self) -> Acls | None:
        """The access lists; None where brokers heed none."""
        return self._acls

    def reload(self, *, always: bool = False) -> bool:
        """Read the files again that have changed, or all; return whether users have."""
        self._tls.reload(always=always)
        self._tls_before_login.reload(always=always)
        return self._passwords.reload(always=always)


def _check_settings(server: ServerConfig, names: Mapping[str, str]) -> None:
    """See that the listeners have what they need."""
    if server.acls:
        raise ConfigError(
            "server.acls is set, but a node heeds the access lists of its cluster: leave it out"
        )
    for listener, protocol in sorted(names.items()):
        with_tls, with_login = PROTOCOLS[protocol]
        if with_tls and not server.tls_certificate:
            raise ConfigError(
                f"listener {listener} is {protocol}, but server.tls_certificate is empty: name the "
                "PEM file"
            )
        if with_login and not server.sasl_mechanisms:
            raise ConfigError(
                f"listener {listener} is {protocol}, but server.sasl_mechanisms is empty: name "
                "those of the brokers"
            )
    known = (*MECHANISMS, OAUTHBEARER)
    unknown = sorted(set(server.sasl_mechanisms) - set(known))
    if unknown:
        raise ConfigError(
            f"server.sasl_mechanisms has {unknown[0]!r}: the known ones are {', '.join(known)}"
        )
    if PLAIN in server.sasl_mechanisms and not server.sasl_users:
        raise ConfigError(
            "server.sasl_users is missing: brokers have the passwords of PLAIN in their own files, "
            "so name a file of users"
        )


def _choose_mechanisms(
    server: ServerConfig, listener: str, settings: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the mechanisms of a listener: those of the node that brokers have there, too."""
    served = _setting(settings, listener, "sasl.enabled.mechanisms")
    named = {one.strip() for one in served.split(",") if one.strip()}
    found = tuple(one for one in server.sasl_mechanisms if not named or one in named)
    if not found:
        raise ConfigError(
            f"server.sasl_mechanisms has none of {served}, which brokers have on the listener "
            f"{listener}: name one of them"
        )
    return found


def _read_verifiers(image: MetadataImage) -> dict[str, dict[str, Verifier]]:
    found: dict[str, dict[str, Verifier]] = {}
    for (name, number), one in sorted(image.verifiers.items()):
        mechanism = SCRAM_NUMBERS.get(number)
        if mechanism in HASHES:
            found.setdefault(name, {})[mechanism] = Verifier(
                mechanism, one.iterations, one.salt, one.stored_key, one.server_key
            )
    return found


def read_acls(image: MetadataImage, super_users: Collection[str], *, otherwise: bool) -> Acls:
    """Return the access lists of a cluster, of the kinds of resources that a node decides on.

    Parameters
    ----------
    otherwise
        Whether everyone may use a resource that no list names.
    """
    literal: dict[Resource, list[Acl]] = {}
    prefixed: dict[Resource, list[Acl]] = {}
    kinds, operations = {int(one) for one in OPERATIONS}, {int(one) for one in Operation}
    entries = list(image.acls.values())
    for entry in entries:
        if entry.resource_type not in kinds or entry.operation not in operations:
            continue  # controllers decide on tokens and users
        kept = prefixed if entry.pattern_type == PREFIXED else literal
        acl = Acl(
            entry.principal,
            normalize_host(entry.host),
            Operation(entry.operation),
            entry.permission_type == ALLOW,
        )
        of = Resource(ResourceType(entry.resource_type), entry.resource_name)
        kept.setdefault(of, []).append(acl)
    digest = hashlib.blake2b(repr(sorted(entries)).encode(), digest_size=16).hexdigest()
    return Acls(
        literal,
        prefixed,
        super_users,
        allow_everyone_if_no_acl_found=otherwise,
        digest=digest,
    )


# The brokers' own settings -----------------------------------------------------------------------

AUTHORIZER_NAME = "authorizer.class.name"
BY_LISTENER = (
    "principal.builder.class",
    "ssl.principal.mapping.rules",
    "ssl.client.auth",
    "sasl.enabled.mechanisms",
)
"""Settings that a broker may have for one listener, too, with the listener's name in front."""
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
NO_MAPPING = "DEFAULT"


async def open_access(
    config: Config, image: MetadataImage, node_id: int, brokers: ClientSettings
) -> ClusterAccess:
    """Return what a node asks of its clients and lets them do, as the brokers would.

    Raises
    ------
    ConfigError
        The brokers do it in a way that a node cannot, or the node lacks a setting.
    OSError
        No broker answers.
    """
    protocols = list_protocols(image, node_id)
    found = await read_settings(brokers, protocols, node_id)
    access = ClusterAccess(
        config.server,
        config.oauth,
        config.node,
        protocols,
        has_authorizer=has_authorizer(found),
        settings=found or {},
    )
    access.update(image)
    why = find_obstacle(found, access.acls, protocols, config.server)
    if why:
        raise ConfigError(f"--listen: {why}")
    return access


async def read_settings(
    brokers: ClientSettings, listeners: Iterable[str], node_id: int
) -> dict[str, str] | None:
    """Ask brokers how they let clients in; None where the node's user may not ask any.

    Another node of Muster does not know: an answer without an authorizer's name is none.

    Raises
    ------
    OSError
        None answers.
    """
    links = Links(brokers)
    names = [AUTHORIZER_NAME, *BY_LISTENER]
    names += [_of_listener(one, name) for one in listeners for name in BY_LISTENER]
    why, has_answered = "no broker is alive", False
    try:
        cluster = await links.ask_any(
            Api.DESCRIBE_CLUSTER,
            include_cluster_authorized_operations=False,
            include_fenced_brokers=False,
        )
        for one in sorted(cluster.brokers, key=lambda broker: broker.broker_id):
            if one.broker_id == node_id:
                continue
            try:
                found = await _ask_settings(links, one, names)
            except OSError as error:
                why = str(error)
                continue
            has_answered = True
            if AUTHORIZER_NAME in found:
                return found
    finally:
        await links.close()
    if has_answered:
        return None
    raise ConnectionError(why)


def _of_listener(listener: str, name: str) -> str:
    return f"listener.name.{listener.lower()}.{name}"


async def _ask_settings(links: Links, broker: Any, names: Sequence[str]) -> dict[str, str]:  # noqa: ANN401
    resource = {
        "resource_type": BROKER,
        "resource_name": str(broker.broker_id),
        "configuration_keys": names,
    }
    where = broker.host, broker.port
    answer = await links.ask(where, Api.DESCRIBE_CONFIGS, resources=[resource])
    (found,) = answer.results
    return {each.name: each.value or "" for each in found.configs}


def has_authorizer(found: Mapping[str, str] | None) -> bool:
    """Whether brokers heed access lists: so it is where they refuse to say."""
    return found is None or bool(found[AUTHORIZER_NAME])


def find_obstacle(
    found: Mapping[str, str] | None,
    acls: Acls | None,
    protocols: Mapping[str, int],
    server: ServerConfig,
) -> str:
    """Return why a node cannot let clients in as the brokers do; "" where it can.

    Parameters
    ----------
    found
        As `read_settings` returns them.
    """
    known = found or {}
    named = known.get(AUTHORIZER_NAME, "")
    if named not in {"", AUTHORIZER}:
        return f"the brokers have the authorizer {named}, which a node cannot ask"
    for listener, number in sorted(protocols.items()):
        why = _find_difference(known, listener, PROTOCOL_NAMES[number], server)
        if why:
            return f"listener {listener}: {why}"
    if acls is not None and not acls.allows_a_principal(Operation.CLUSTER_ACTION, CLUSTER):
        return (
            "no access list allows any principal CLUSTER_ACTION, and node.super_users is empty, so "
            "the brokers could not follow this node: name their super users"
        )
    return ""


def _find_difference(
    known: Mapping[str, str], listener: str, protocol: str, server: ServerConfig
) -> str:
    """Return why a node cannot let the clients of a listener in as the brokers do."""
    builder, rules, wants = (_setting(known, listener, name) for name in BY_LISTENER[:3])
    if builder not in {"", BUILDER}:
        return f"the brokers make principals by {builder}, which a node cannot"
    if protocol != "SSL":
        return ""
    if wants == "required" and not server.tls_client_ca:
        return "the brokers require certificates of clients: name their CA in server.tls_client_ca"
    if wants == "none" and server.tls_client_ca:
        return "the brokers require no certificates of clients: leave server.tls_client_ca out"
    if server.tls_client_ca and rules not in {"", NO_MAPPING}:
        return f"the brokers map certificates by {rules!r} (ssl.principal.mapping.rules)"
    return ""


def _setting(known: Mapping[str, str], listener: str, name: str) -> str:
    """Return a setting of a listener, else that of all; "" where it is not known."""
    return known.get(_of_listener(listener, name)) or known.get(name) or ""
