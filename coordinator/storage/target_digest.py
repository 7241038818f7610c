"""A digest of the rows of a target, independent of their order.

The digest is the sum over all rows, modulo 2^64, of

    xxhash64(member_id, topic_id, first_partition, partition_count)

as Spark computes it: XXH64 of the first column with seed 42, and of each next column with the hash
before as its seed; text is its UTF-8 bytes, a number is a 32-bit integer. So a row that is missing,
twice, or another one changes it, and so do two members that swap their ranges. It is kept as a
signed number, as SQL has no other. This is NumPy's twin of that expression: text of equal length
is hashed together, a column of bytes at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

COLUMNS = ["member_id", "topic_id", "first_partition", "partition_count"]
SEED = 42
CHUNK = 10_000
"""Rows that are hashed at once: their arrays fit the cache, and other threads get their turns."""
P1, P2, P3, P4, P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
STRIPE, WORD, HALF = 32, 8, 4


def digest_rows(rows: pa.Table) -> int:
    """Return the digest of member_id, topic_id, first_partition, partition_count."""
    total = np.uint64(0)
    with np.errstate(over="ignore"):
        for batch in rows.select(COLUMNS).to_batches():
            members = _hash_members(batch["member_id"])
            for at, seeds in zip(range(0, len(batch), CHUNK), members, strict=True):
                some = batch.slice(at, CHUNK)
                hashes = hash_texts(_to_texts(some["topic_id"]), seeds)
                for name in COLUMNS[2:]:
                    hashes = _hash_ints(some[name].to_numpy().astype(np.int32), hashes)
                total += hashes.sum(dtype=np.uint64)
    return int(total.view(np.int64))


def _hash_members(column: pa.Array) -> Iterator[Hashes]:
    """Yield the hashes of the members of each chunk of rows: those that are coded are made once."""
    if not pa.types.is_dictionary(column.type):
        for at in range(0, len(column), CHUNK):
            some = column.slice(at, CHUNK)
            yield hash_texts(some, np.full(len(some), SEED, dtype=np.uint64))
        return
    codes = column.indices.to_numpy()
    low, high = (int(codes.min()), int(codes.max()) + 1) if len(codes) else (0, 0)
    values = [np.zeros(0, np.uint64), *_hash_members(column.dictionary.slice(low, high - low))]
    known = np.concatenate(values)
    for at in range(0, len(codes), CHUNK):
        yield known[codes[at : at + CHUNK] - low]


def _to_texts(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _hash_ints(values: npt.NDArray[np.int32], seeds: Hashes) -> Hashes:
    mixed = seeds + P5 + np.uint64(HALF)
    mixed = _mix_half(mixed, values.view(np.uint32).astype(np.uint64))
    return _finalize(mixed)


def hash_texts(texts: pa.Array, seeds: Hashes) -> Hashes:
    """Hash each text with its own seed, those of one length together."""
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    flat: Bytes = np.frombuffer(data or b"", np.uint8)
    starts, lengths = bounds[:-1].astype(np.int64), np.diff(bounds)
    if len(lengths) and (lengths == lengths[0]).all():  # they lie as a block has them
        return _hash_block(flat[bounds[0] : bounds[-1]].reshape(len(texts), lengths[0]), seeds)
    hashes = np.empty(len(texts), dtype=np.uint64)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        block = flat[starts[rows][:, None] + np.arange(length)]
        hashes[rows] = _hash_block(block, seeds[rows])
    return hashes


def _hash_block(block: Bytes, seeds: Hashes) -> Hashes:
    """Hash texts of equal length, one per row."""
    length = block.shape[1]
    at = length - length % STRIPE
    mixed = _hash_stripes(block[:, :at], seeds) if at else seeds + P5
    mixed = mixed + np.uint64(length)
    while at + WORD <= length:
        mixed = _mix_word(mixed, _read_numbers(block, at, np.uint64))
        at += WORD
    if at + HALF <= length:
        mixed = _mix_half(mixed, _read_numbers(block, at, np.uint32))
        at += HALF
    for place in range(at, length):
        mixed = _rotate(mixed ^ (block[:, place].astype(np.uint64) * P5), 11) * P1
    return _finalize(mixed)


def _hash_stripes(block: Bytes, seeds: Hashes) -> Hashes:
    lanes = [seeds + P1 + P2, seeds + P2, seeds.copy(), seeds - P1]
    for at in range(0, block.shape[1], STRIPE):
        for lane in range(4):
            word = _read_numbers(block, at + lane * WORD, np.uint64)
            lanes[lane] = _rotate(lanes[lane] + word * P2, 31) * P1
    turns = zip(lanes, (1, 7, 12, 18), strict=True)
    mixed: Hashes = np.sum([_rotate(lane, by) for lane, by in turns], axis=0, dtype=np.uint64)
    for lane_hashes in lanes:
        mixed = (mixed ^ (_rotate(lane_hashes * P2, 31) * P1)) * P1 + P4
    return mixed


def _read_numbers(block: Bytes, at: int, kind: type[np.unsignedinteger]) -> Hashes:
    """Return the little-endian numbers that begin at a column."""
    width = np.dtype(kind).itemsize
    columns = np.ascontiguousarray(block[:, at : at + width])
    return columns.view(np.dtype(kind).newbyteorder("<"))[:, 0].astype(np.uint64)


def _mix_word(mixed: Hashes, words: Hashes) -> Hashes:
    return _rotate(mixed ^ (_rotate(words * P2, 31) * P1), 27) * P1 + P4


def _mix_half(mixed: Hashes, halves: Hashes) -> Hashes:
    return _rotate(mixed ^ (halves * P1), 23) * P2 + P3


def _rotate(values: Hashes, by: int) -> Hashes:
    return (values << np.uint64(by)) | (values >> np.uint64(64 - by))


def _finalize(mixed: Hashes) -> Hashes:
    mixed = (mixed ^ (mixed >> np.uint64(33))) * P2
    mixed = (mixed ^ (mixed >> np.uint64(29))) * P3
    return mixed ^ (mixed >> np.uint64(32))


def join_halves(high: int, low: int) -> int:
    """Return the digest from the sums of the hashes' upper and lower 32 bits; neither wraps."""
    return ((high << 32) + low + (1 << 63)) % (1 << 64) - (1 << 63)
