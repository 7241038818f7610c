"""Values of the assignors' options, apart from the solvers: reading settings imports no scipy."""

from __future__ import annotations

import re
from fractions import Fraction

from assignors.errors import SpecError

EXACT_EDGES = 4_000_000
"""Arcs of the largest network solved exactly; the default of `plan.exact_edges` in conf/."""
LONG_RANGES = 1 << 20
"""Partitions of the largest group whose ranges are kept long: `plan.long_ranges` in conf/."""
LONG_RANGES_A_MEMBER = 128
"""Of these, so many for each member: 8,192 members at the most."""
_PERCENT = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?%")


def parse_share(value: str, name: str) -> Fraction:
    """Read a percentage.

    Raises
    ------
    SpecError
        It is not a share.
    """
    found = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise SpecError(f'{name} is {value!r}: give a share such as "5%"')
    digits = found[2] or ""
    return Fraction(int(found[1] + digits), 100 * 10 ** len(digits))


def check_defragment(value: object) -> None:
    """Refuse a budget of moves for longer ranges that is not a number of partitions."""
    if type(value) is not int or value < 0:
        raise SpecError(f"defragment is {value!r}: give a whole number of partitions, 0 or more")
