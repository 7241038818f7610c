"""session: who is on the other side of a connection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
SPECIAL = frozenset(',+"\\<>;')


@dataclass(slots=True, eq=False)
class Session:
    """Who asks.

    Attributes
    ----------
    principal
        As Kafka names it: `User:` and the name that logged in; of a client certificate its subject.
        It never changes once requests are taken.
    host
        The client's address, without a port.
    """

    principal: str = ANONYMOUS
    host: str = ""


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
    return ",".join("+".join(map(_attribute, part)) for part in reversed(parts))


def _attribute(attribute: tuple[str, str]) -> str:
    name, value = attribute
    escaped = "".join(f"\\{char}" if char in SPECIAL else char for char in value)
    if escaped[:1] in {" ", "#"}:
        escaped = f"\\{escaped}"
    if escaped.endswith(" ") and len(value) > 1:
        escaped = f"{escaped[:-1]}\\ "
    return f"{KEYWORDS.get(name, name)}={escaped}"
