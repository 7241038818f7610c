"""What stands for the answer to a request that waits for other members of its group."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LaterAnswer:
    """The response of a Result for now: the future of the answer, as `submit` would give it."""

    future: Future[Any]
