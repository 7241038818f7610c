"""The principal and the client of a connection."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator.wire.acls import Acls, Operation, Resource

ANONYMOUS = "User:ANONYMOUS"
"""Kafka's name for a client that shows neither a login nor a certificate."""
KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes that RFC 2253 names; Java writes all others with their numbers."""
ENCODINGS = {
    12: "utf-8", 19: "latin-1", 20: "latin-1", 22: "latin-1", 27: "latin-1", 30: "utf-16-be",
}  # fmt: skip
"""Of ASN.1's kinds of texts, those that Java writes as text. Java 17.0.15 reads all as UTF-8, which
is another name only where a BMPString is used, or one of the others beyond ASCII."""
DECISIONS_MAX, DECIDED_NAME_MAX = 4_096, 255
"""Decisions that are kept for a connection, and characters of a name in one of them; a client may
ask for any number of names, of any length."""
SOFTWARE = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9.\-]*[a-zA-Z0-9])?")
SOFTWARE_MAX = 100
"""Longer names than any client's are refused; Kafka has no bound."""
SPECIAL = re.compile(r'[,=+<>#;"\\]')
EDGES = re.compile(r"\A[ \r]+|[ \r]+\Z")


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


def subject_of(certificate: bytes | None) -> str | None:
    """Return the name of a certificate's subject, as X500Principal.getName() of Java gives it.

    That is what Kafka makes a principal of. The most specific part is the first (RFC 2253).

    Parameters
    ----------
    certificate
        In DER; None where the client showed none.
    """
    if not certificate:
        return None
    try:
        fields = _list_values(_list_values(_list_values(certificate)[0].content)[0].content)
        has_version = fields[0].tag == VERSION  # of version 1, there is none
        return _name_of(fields[4 + has_version].content)
    except (IndexError, ValueError):
        return None  # OpenSSL reads more than DER, Java does not: such a subject has no rights


def _name_of(parts: bytes) -> str:
    """Return a name of X.500 as Java writes it; the parts are those of its DER, in their order."""
    shown = [map(_format_attribute, _list_values(one.content)) for one in _list_values(parts)]
    return ",".join(map("+".join, reversed(shown)))


VERSION, LONG, NUMBER_BITS = 0xA0, 0x80, 7
"""The tag of a certificate's version; the bit of a long length, and of a number that goes on."""


class _Value(NamedTuple):
    """A value of DER."""

    tag: int
    content: bytes


def _list_values(data: bytes) -> list[_Value]:
    """Return the values that stand one after the other; OpenSSL has read them before."""
    found, at = [], 0
    while at < len(data):
        tag, size = data[at], data[at + 1]
        at += 2
        if size & LONG:
            digits = size - LONG
            size = int.from_bytes(data[at : at + digits])
            at += digits
        found.append(_Value(tag, data[at : at + size]))
        at += size
    return found


def _format_attribute(attribute: _Value) -> str:
    kind, value = _list_values(attribute.content)
    number = _read_number(kind.content)
    if number not in KEYWORDS or value.tag not in ENCODINGS:
        return f"{KEYWORDS.get(number, number)}=#{_encode(value).hex()}"
    text = value.content.decode(ENCODINGS[value.tag], "replace")
    escaped = SPECIAL.sub(r"\\\g<0>", text).replace("\0", "\\00")
    escaped = EDGES.sub(lambda edge: "".join(f"\\{char}" for char in edge[0]), escaped)
    return f"{KEYWORDS[number]}={escaped}"


def _read_number(content: bytes) -> str:
    """Return an object identifier in its dotted form."""
    numbers, number = [], 0
    for byte in content:
        number = number << NUMBER_BITS | byte & ~LONG
        if not byte & LONG:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _encode(value: _Value) -> bytes:
    """Return a value as DER."""
    size = len(value.content)
    if size < LONG:
        return bytes((value.tag, size)) + value.content
    digits = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((value.tag, LONG | len(digits))) + digits + value.content
