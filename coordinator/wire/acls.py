"""Access control lists, decided as Kafka's StandardAuthorizer does.

Pure: the text of the file comes from the caller. A deny overrides every allow; all allows
count the same; what no list mentions, only super users may do.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec

from coordinator.errors import ConfigError

ANYONE, ANY_NAME, ANY_HOST = "User:*", "*", "*"
CLUSTER_NAME = "kafka-cluster"
"""The one name that the one resource of the type CLUSTER has in Kafka."""
SOME_NAME = "hardcode"
"""Of a resource that no list is likely to name: what is allowed with it is allowed with any."""


class Operation(IntEnum):
    """Kafka's operations, with its codes."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """Kafka's types of resources that exist here, with its codes."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


OPERATIONS: Mapping[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.ALTER,
        Operation.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (
        Operation.DESCRIBE,
        Operation.WRITE,
        Operation.TWO_PHASE_COMMIT,
    ),
}
"""What can be allowed or denied on a resource (Kafka's AclEntry.supportedOperations)."""
IN_FILES = {one.name: one for one in ResourceType if one is not ResourceType.TRANSACTIONAL_ID}
"""The types that a file of access lists may name: a server of Muster's own has no transactions."""

_IMPLIED = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}
"""Operations that, where they are allowed, allow another one, too. A deny implies nothing."""


class Resource(NamedTuple):
    """What an operation is asked on."""

    type: ResourceType
    name: str


CLUSTER = Resource(ResourceType.CLUSTER, CLUSTER_NAME)


class Acl(NamedTuple):
    """One entry: who may, or may not, do what from where; the resource is the key it is kept by."""

    principal: str
    host: str
    operation: Operation
    allows: bool

    def judge(self, principal: str, host: str, operation: Operation) -> bool | None:
        """Whether this entry allows or denies an operation; None: it says nothing of it."""
        if self.principal not in {principal, ANYONE} or self.host not in {host, ANY_HOST}:
            return None
        if self.operation in {operation, Operation.ALL}:
            return self.allows
        implied = self.allows and self.operation in _IMPLIED.get(operation, ())
        return True if implied else None


class Acls:
    """All access control lists, by resource.

    Parameters
    ----------
    literal, prefixed
        The entries of each name and of each beginning of names; the literal name `*` is every one.
    super_users
        Principals that may do everything.
    allow_everyone_if_no_acl_found
        Kafka's setting: everyone may use a resource that no entry names.
    digest
        Of the text that they were read from: another one where anything may be another.
    """

    def __init__(
        self,
        literal: Mapping[Resource, list[Acl]],
        prefixed: Mapping[Resource, list[Acl]],
        super_users: Iterable[str] = (),
        *,
        allow_everyone_if_no_acl_found: bool = False,
        digest: str = "",
    ) -> None:
        self.digest = digest
        self._literal = literal
        self._prefixed = prefixed
        self._lengths = {
            kind: sorted({len(of.name) for of in prefixed if of.type is kind})
            for kind in ResourceType
        }
        self._super_users = frozenset(super_users)
        self._otherwise = allow_everyone_if_no_acl_found

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource) -> bool:
        """Whether a principal at a host may do something."""
        if principal in self._super_users:
            return True
        found, allowed = False, False
        for acl in self._find_acls(resource):
            found = True
            verdict = acl.judge(principal, host, operation)
            if verdict is False:
                return False
            allowed = allowed or verdict is True
        return allowed or (not found and self._otherwise)

    def allows_a_principal(self, operation: Operation, resource: Resource) -> bool:
        """Whether there is a principal that may do something."""
        if self._super_users:
            return True
        found = [
            acl for acl in self._find_acls(resource) if acl.operation in {operation, Operation.ALL}
        ]
        return any(acl.allows for acl in found) or (not found and self._otherwise)

    def allows_any(
        self, principal: str, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        """Whether a principal may do something with a resource of a kind, whichever it is.

        As Kafka's `Authorizer.authorizeByResourceType`: a name is allowed, and neither it nor a
        beginning of it is denied.
        """
        if self.allows(principal, host, operation, Resource(kind, SOME_NAME)):
            return True
        found: dict[tuple[bool, bool], set[str]] = {}
        for is_literal, lists in ((True, self._literal), (False, self._prefixed)):
            for of, entries in lists.items():
                if of.type is not kind:
                    continue
                for acl in entries:
                    verdict = acl.judge(principal, host, operation)
                    if verdict is not None:
                        found.setdefault((is_literal, verdict), set()).add(of.name)
        denied, denied_beginnings = (
            found.get((True, False), set()),
            found.get((False, False), set()),
        )
        if ANY_NAME in denied:
            return False

        def is_denied(name: str) -> bool:
            return any(name.startswith(one) for one in denied_beginnings)

        return any(
            name not in denied and not is_denied(name) for name in found.get((True, True), ())
        ) or any(not is_denied(name) for name in found.get((False, True), ()))

    def _find_acls(self, resource: Resource) -> Iterable[Acl]:
        """Yield the entries whose name or beginning matches a resource."""
        kind, name = resource
        yield from self._literal.get(resource, ())
        if name != ANY_NAME:
            yield from self._literal.get(Resource(kind, ANY_NAME), ())
        for length in self._lengths[kind]:
            if length > len(name):
                return
            yield from self._prefixed.get(Resource(kind, name[:length]), ())


class _AclEntry(msgspec.Struct, forbid_unknown_fields=True):
    """One table [[acls]] of the file."""

    principal: str
    operations: list[str]
    resource_type: str
    resource_name: str
    pattern_type: str = "LITERAL"
    permission: str = "ALLOW"
    host: str = ANY_HOST


class _AclFile(msgspec.Struct, forbid_unknown_fields=True):
    acls: list[_AclEntry] = []
    super_users: list[str] = []
    allow_everyone_if_no_acl_found: bool = False


def parse_acls(text: str, where: str) -> Acls:
    """Read access control lists from TOML; `conf/acls.toml` says what may stand there.

    Raises
    ------
    ConfigError
        Not TOML, an unknown name, or an entry that cannot mean anything; the message says where.
    """
    try:
        file = msgspec.toml.decode(text, type=_AclFile)
    except msgspec.DecodeError as error:  # ValidationError is one
        raise ConfigError(f"{where}: {error}") from None
    literal: dict[Resource, list[Acl]] = {}
    prefixed: dict[Resource, list[Acl]] = {}
    try:
        super_users = [parse_super_user(name) for name in file.super_users]
        for number, entry in enumerate(file.acls):
            _add_entry(entry, f"acls[{number}]", literal, prefixed)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    return Acls(
        literal,
        prefixed,
        super_users,
        allow_everyone_if_no_acl_found=file.allow_everyone_if_no_acl_found,
        digest=hashlib.blake2b(text.encode(), digest_size=16).hexdigest(),
    )


def normalize_host(host: str) -> str:
    """Return an address in the one form in which hosts are compared."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _add_entry(
    entry: _AclEntry,
    where: str,
    literal: dict[Resource, list[Acl]],
    prefixed: dict[Resource, list[Acl]],
) -> None:
    kind = _parse_choice(IN_FILES, entry.resource_type, f"{where}: resource_type")
    pattern = {"LITERAL": literal, "PREFIXED": prefixed}
    kept = _parse_choice(pattern, entry.pattern_type, f"{where}: pattern_type")
    allows = _parse_choice({"ALLOW": True, "DENY": False}, entry.permission, f"{where}: permission")
    known = {one.name: one for one in (*OPERATIONS[kind], Operation.ALL)}
    if not entry.operations:
        raise ConfigError(f"{where}: operations is empty: give some of {', '.join(known)}")
    name = entry.resource_name
    if not name:
        raise ConfigError(f"{where}: resource_name is empty: give a name, or * for every one")
    if kind is ResourceType.CLUSTER and (name != CLUSTER_NAME or kept is prefixed):
        raise ConfigError(
            f"{where}: resource_name is {name!r}: the cluster's is {CLUSTER_NAME!r}, LITERAL"
        )
    principal, host = (
        _parse_principal(entry.principal, f"{where}: principal"),
        _parse_host(entry.host, where),
    )
    for text in entry.operations:
        operation = _parse_choice(known, text, f"{where}: operations")
        acl = Acl(principal, host, operation, allows)
        kept.setdefault(Resource(kind, name), []).append(acl)


def _parse_choice(known: Mapping[str, Any], text: str, where: str) -> Any:  # noqa: ANN401 - one of known
    if text.upper() not in known:
        raise ConfigError(f"{where} is {text!r}: give one of {', '.join(known)}")
    return known[text.upper()]


def _parse_principal(text: str, where: str) -> str:
    kind, colon, name = text.partition(":")
    if kind != "User" or not colon or not name:
        raise ConfigError(f"{where} is {text!r}: give User:name, or {ANYONE} for everybody")
    return text


def parse_super_user(text: str, setting: str = "super_users") -> str:
    """Return a principal that may do everything.

    Raises
    ------
    ConfigError
        It is none, or is everybody.
    """
    if _parse_principal(text, setting) == ANYONE:
        raise ConfigError(f"{setting} is {text!r}: name each, or allow everybody with a list")
    return text


def _parse_host(text: str, where: str) -> str:
    if text == ANY_HOST:
        return text
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise ConfigError(
            f"{where}: host is {text!r}: give the client's address, or * for any"
        ) from None
    return normalize_host(text)
