"""The principal and the client of a connection."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from coordinator.wire.acls import Acls, Operation, Resource

ANONYMOUS = "User:ANONYMOUS"
"""Kafka's name for a client that shows neither a login nor a certificate."""
KEYWORDS = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
DECISIONS_MAX, DECIDED_NAME_MAX = 4_096, 255
"""Decisions that are kept for a connection, and characters of a name in one of them; a client may
ask for any number of names, of any length."""
SOFTWARE = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9.\-]*[a-zA-Z0-9])?")
SOFTWARE_MAX = 100
"""Longer names than any client's are refused; Kafka has no bound."""
SPECIAL = frozenset(',+"\\<>;')


@dataclass(slots=True, eq=False)
class Session:
    """The principal of a connection, and what its client says of itself.

    Attributes
    ----------
    principal
        As Kafka names it: `User:` and the name that logged in; of a client certificate its subject.
        It never changes once requests are taken.
    host
        The client's address, without a port; an IPv4 address as such, however it came.
    client_id
        As the client called itself last.
    listener
        The name of the listener that it came by; "" where a server has only one.
    software, software_version
        What its software says that it is; "" until it has, or where Kafka would not take it.
    """

    principal: str = ANONYMOUS
    host: str = ""
    client_id: str = ""
    listener: str = ""
    software: str = ""
    software_version: str = ""
    _decided: tuple[Acls | None, dict[tuple[Operation, Resource], bool]] = field(
        default=(None, {}), repr=False
    )
    """Of the lists that are in force, replaced with them: large answers are made in a thread."""

    def introduce(self, name: str, version: str) -> None:
        """Take the client's software name and version (KIP-511)."""
        if is_valid_software(name) and is_valid_software(version):
            self.software, self.software_version = name, version

    @property
    def named_software(self) -> str:
        """Its software with the version, "" until it has sent them."""
        return f"{self.software} {self.software_version}".rstrip()

    def may(self, acls: Acls, operation: Operation, of: Resource) -> bool:
        """Whether the principal may do something, by these lists."""
        known, decided = self._decided
        if known is not acls or len(decided) > DECISIONS_MAX:
            decided = {}
            self._decided = acls, decided
        found = decided.get((operation, of))
        if found is None:
            found = acls.allows(self.principal, self.host, operation, of)
            if len(of.name) <= DECIDED_NAME_MAX:
                decided[operation, of] = found
        return found


def is_valid_software(text: str) -> bool:
    """Whether a text may be the name of a client's software, or its version (KIP-511)."""
    return len(text) <= SOFTWARE_MAX and SOFTWARE.fullmatch(text) is not None


def principal_of(name: str) -> str:
    """Return the principal of a user's name."""
    return f"User:{name}"


def subject_of(certificate: dict[str, object] | None) -> str:
    """Return a certificate's subject as a principal's name, most specific part first (RFC 2253).

    Parameters
    ----------
    certificate
        What `ssl.SSLSocket.getpeercert` returns; None or {} where the client showed none.
    """
    parts = (certificate or {}).get("subject", ())
    assert isinstance(parts, Sequence)
    return ",".join("+".join(map(_format_attribute, part)) for part in reversed(parts))


def _format_attribute(attribute: tuple[str, str]) -> str:
    name, value = attribute
    escaped = "".join(f"\\{char}" if char in SPECIAL else char for char in value)
    if escaped[:1] in {" ", "#"}:
        escaped = f"\\{escaped}"
    if escaped.endswith(" ") and len(value) > 1:
        escaped = f"{escaped[:-1]}\\ "
    return f"{KEYWORDS.get(name, name)}={escaped}"
