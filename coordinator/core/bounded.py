"""Types of what a request may have: bounded as Kafka's protocol bounds them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated, TypeAlias

import msgspec

INT32_MAX = 2**31 - 1
TEXT_MAX = 32_767
"""As long as Kafka lets any text be."""

Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-INT32_MAX - 1, le=INT32_MAX)]
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Partition: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]
Epoch: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]
FindVisible: TypeAlias = Callable[[Collection[str]], Collection[str]]
"""From names of topics to those that a request's client may describe, by the rules in force when it
is called. The shell gives it with the request; the core only hands it on."""
