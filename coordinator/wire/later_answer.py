"""The placeholder for the answer to a request that waits for other members of its group."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LaterAnswer:
    """The provisional response of a Result: the future of the answer, as `submit` returns it."""

    future: Future[Any]
