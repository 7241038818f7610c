"""Codes of reasons as columns: joined by commas while views are computed, then as lists."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from coordinator.core.reasons import codes_of
from coordinator.history.keyed_rows import combine_chunks


def encode_reasons(reasons: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the codes of each reason, joined; null for null."""
    texts = combine_chunks(reasons)
    coded = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
    codes = [",".join(codes_of(one or "")) or None for one in coded.dictionary.to_pylist()]
    return pa.array(codes, pa.string()).take(coded.indices)


def list_codes(codes: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return joined codes as lists."""
    return pc.split_pattern(combine_chunks(codes), ",")
