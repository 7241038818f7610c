"""The input: each partition of a topic is a folder of Parquet files, in the order of their names.

An offset is a row's number in that order. A file appears whole: it is renamed into its place.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

TOPIC = "clicks"
TOPICS_FILE = "topics.json"
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.string()),
        ("worker", pa.string()),
    ]
)
"""The rows of the output."""


def folder_of(root: Path, topic: str, partition: int) -> Path:
    """Return where a partition's files are."""
    return root / topic / f"{partition:04}"


def append(folder: Path, first_offset: int, values: list[str]) -> None:
    """Add a file of rows; its name sorts by its first offset."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{first_offset:012}.parquet"
    beside = path.with_suffix(".part")
    pq.write_table(pa.table({"value": values}), beside)
    os.replace(beside, path)


def read(folder: Path, offset: int, most: int) -> list[str]:
    """Return the values of a partition from an offset on, at most so many."""
    values: list[str] = []
    paths = sorted(folder.glob("*.parquet")) if folder.is_dir() else []
    # The last file that begins at or before the offset, and those after it.
    starts = [int(path.stem) for path in paths]
    for path, start in zip(paths, starts, strict=True):
        rows = pq.read_metadata(path).num_rows
        if start + rows <= offset:
            continue
        column = pq.read_table(path, columns=["value"])["value"]
        values += column.slice(max(0, offset - start)).to_pylist()
        offset = max(offset, start + rows)
        if len(values) >= most:
            break
    return values[:most]


def rows_in(root: Path) -> int:
    """Return how many rows all partitions have."""
    return sum(pq.read_metadata(path).num_rows for path in root.glob("*/*/*.parquet"))


def write_topics(root: Path, partitions: int) -> None:
    """Say how many partitions the topic has, for the coordinator to see."""
    root.mkdir(parents=True, exist_ok=True)
    beside = root / f"{TOPICS_FILE}.part"
    beside.write_text(json.dumps({TOPIC: partitions}))
    os.replace(beside, root / TOPICS_FILE)
