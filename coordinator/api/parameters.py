"""Parameters of a request: what is unknown, given twice or wrong is refused, never ignored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from assignors import SpecError

LIMIT, LIMIT_MAX = 100, 1_000
PARAMETERS_MAX = 20
SHOWN_MAX = 255
PARTITION_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the query.

    Attributes
    ----------
    doc
        What it says, in one line.
    choices
        The values that it may have; () for any.
    least, most
        Of a whole number; None of a text.
    """

    name: str
    doc: str
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int = 0

    @property
    def schema(self) -> dict[str, Any]:
        """Its schema in OpenAPI's document."""
        if self.least is not None:
            return {"type": "integer", "minimum": self.least, "maximum": self.most}
        return {"type": "string"} | ({"enum": list(self.choices)} if self.choices else {})


AS_OF = Parameter(
    "as_of",
    "A position of the log, or a time such as `2026-03-01T12:00Z`; without it, now.",
)
PAGING = (
    Parameter("limit", f"How many items to return; {LIMIT} unless given.", least=1, most=LIMIT_MAX),
    Parameter("cursor", "Where to go on: take it from `next`, which has all parameters."),
)
AFTER = Parameter("after", "Only what is after this position of the log.", least=0, most=2**63 - 1)
TOPIC = Parameter("topic", "Only this topic.")
PARTITION = Parameter(
    "partition", "Only this partition; goes with `topic`.", least=0, most=PARTITION_MAX
)


def parse_path(raw: bytes) -> list[str] | None:
    """Return the parts of a path between its slashes, decoded; a part may have a slash as %2F.

    None is a path whose bytes are no text.
    """
    try:
        return [unquote_to_bytes(one).decode("utf-8") for one in raw.split(b"/")]
    except UnicodeDecodeError:
        return None


def parse_query(raw: bytes, known: Sequence[Parameter]) -> dict[str, str]:
    """Return the parameters of a query.

    Raises
    ------
    SpecError
        One is unknown, is there twice, is not UTF-8, or has a value that it may not have.
    """
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=PARAMETERS_MAX,
        )
    except ValueError as error:  # UnicodeDecodeError is one
        raise SpecError(f"the query cannot be read: {error}: encode it as UTF-8 in %XX") from None
    by_name = {one.name: one for one in known}
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in by_name:
            names = ", ".join(by_name) or "none"
            raise SpecError(f"there is no parameter {cut(name)!r} here: it takes {names}")
        if name in found:
            raise SpecError(f"{name} is given twice: give it once")
        found[name] = value
        _check(by_name[name], value)
    return found


def _check(parameter: Parameter, value: str) -> None:
    name = parameter.name
    if value == "":
        raise SpecError(f"{name} is empty: give a value, or leave {name} out")
    if parameter.choices and value not in parameter.choices:
        raise SpecError(f"{name} is {cut(value)!r}: give one of {', '.join(parameter.choices)}")
    if parameter.least is not None:
        digits = value.isascii() and value.isdigit() and len(value) <= len(str(parameter.most))
        if not digits or not parameter.least <= int(value) <= parameter.most:
            bounds = f"{parameter.least} to {parameter.most}"
            raise SpecError(f"{name} is {cut(value)!r}: give a whole number, {bounds}")


def read_limit(given: Mapping[str, str]) -> int:
    """Return how many items are wanted."""
    return int(given.get("limit", LIMIT))


def cut(text: str) -> str:
    """Return a value for a message, which must not be as long as what was sent."""
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "…"
