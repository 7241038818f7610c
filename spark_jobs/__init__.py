"""Assignors as DataFrame operations, and the jobs around them.

The outermost room: it may import everything and is imported by nobody; the coordinator finds it by
entry points. Importing this package starts no JVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_jobs.jobs.embedding import embed

__all__ = ["embed"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - what a module has
    """Import `embed` when it is asked for: set-up takes this package without its dependencies."""
    if name != "embed":
        raise AttributeError(f"module 'spark_jobs' has no attribute {name!r}")
    from spark_jobs.jobs.embedding import embed  # noqa: PLC0415 - see above

    return embed
