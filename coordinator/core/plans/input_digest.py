"""Digests of what a plan is made from and of what it does: of columns, not of rows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Column: TypeAlias = Sequence[str | None] | pa.Array | np.ndarray[Any, Any]
"""Texts, some of which may be None, or numbers."""
_DIGEST_BYTES = 8
_SEPARATOR = "\x1f"


def hash_texts(texts: Sequence[str]) -> str:
    """Return a digest of a few texts, in order."""
    joined = _SEPARATOR.join(texts).encode(errors="surrogatepass")
    return hashlib.blake2b(joined, digest_size=_DIGEST_BYTES).hexdigest()


def hash_columns(columns: Sequence[Column]) -> str:
    """Return a digest of columns in order; two lists of columns that differ have different ones.

    A column is hashed as its length, its values' lengths if it is of texts, and its values.
    """
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for column in columns:
        if isinstance(column, np.ndarray):
            digest.update(f"{column.dtype.str}{len(column)} ".encode())
            digest.update(np.ascontiguousarray(column).data)
            continue
        texts = column if isinstance(column, pa.Array) else pa.array(column, pa.large_string())
        lengths = pc.fill_null(pc.binary_length(texts).cast(pa.int64()), -1)
        digest.update(f"text{len(texts)} ".encode())
        digest.update(np.ascontiguousarray(lengths).data)
        digest.update(_join(texts))
    return digest.hexdigest()


def _join(texts: pa.Array) -> memoryview | bytes:
    """Return all texts in a row, without those that are null."""
    found = texts.drop_null().cast(pa.large_string())
    _, offsets, values = found.buffers()
    if not len(found) or values is None:
        return b""
    edges = np.frombuffer(offsets, dtype=np.int64)[found.offset : found.offset + len(found) + 1]
    return memoryview(values)[edges[0] : edges[-1]]
