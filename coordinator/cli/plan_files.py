"""Plans as files: what `muster plan -o` writes and `muster apply` reads."""

from __future__ import annotations

import codecs
import uuid
from contextlib import suppress
from pathlib import Path

import msgspec

from assignors import SpecError
from coordinator.api.plans import find_unknown
from coordinator.core.state.records import PlanMade


def write_plan(path: Path, plan: PlanMade) -> None:
    """Write a plan to a file, whole or not at all."""
    if not path.name:  # of "" too, which is what a shell has of a variable that is not set
        raise SpecError(f"{path} cannot be written: name a file")
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(plan)) + b"\n")
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise SpecError(f"{path} cannot be written: {error.strerror}") from None


def read_plan(path: Path) -> PlanMade:
    """Read a plan from a file.

    Raises
    ------
    SpecError
        The file cannot be read, or is not a plan; or it has a field that no plan has: what a user
        added to it must not be ignored.
    """
    try:
        given = msgspec.json.decode(path.read_bytes().removeprefix(codecs.BOM_UTF8))
        plan = msgspec.convert(given, PlanMade)
        more = find_unknown(given, msgspec.to_builtins(plan))
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SpecError(f"{path} is not a plan: {error}; `muster plan -o` writes one") from None
    if more is not None:
        raise SpecError(
            f"{path} is not a plan: it has an unknown field {more!r}; `muster plan -o` writes one"
        )
    return plan
