"""The columns of the log follow from the fields of records: a new field is one line."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from typing import Annotated

import msgspec
import pyarrow as pa
import pytest

from coordinator.core.state.record_fields import Int, Key, Long, Names, Own, fields_of
from coordinator.core.state.records import (
    GroupConfigured,
    MemberMetadata,
    OffsetCommitted,
)
from coordinator.storage.record_decoder import ValueCache, decode_rows
from coordinator.storage.record_encoder import encode_records
from coordinator.storage.record_schema import FIELDS, ORDER, SCHEMA, arrow_type
from tests.conftest import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
STEPS = re.findall(
    r"^- `([^`]+)`", PAGE.split("### a field of a record\n")[1].split("\n### ")[0], re.MULTILINE
)


class Protocol(msgspec.Struct):
    name: str
    metadata: bytes
    version: Int = 0


class Sample(msgspec.Struct):
    group_id: Key[str]
    protocols: Annotated[tuple[Protocol, ...], "what it speaks"]
    size: Own[Long] | None = None
    names: Names = ()


def test_a_column_follows_from_the_annotation():
    group, protocols, size, names = fields_of(Sample)
    assert (group.column, group.default, protocols.text) == ("group_id", None, "what it speaks")
    assert (size.type, size.optional, names.default()) == (int, True, ())
    assert str(arrow_type(protocols.type)) == (
        "list<item: struct<name: string, metadata: binary, version: int32>>"
    )
    assert arrow_type(names.type, names.marks) == pa.string()


@pytest.mark.parametrize("type_", [int, object, tuple[int, str], list[str]])
def test_a_type_that_no_column_can_have_is_refused(type_):
    with pytest.raises(TypeError, match="no column has values of type"):
        arrow_type(type_)


def test_a_field_of_two_types_is_refused():
    class Torn(msgspec.Struct):
        one: str | bytes

    with pytest.raises(TypeError, match="is several types"):
        fields_of(Torn)


def test_the_columns_of_stores_keep_their_order():
    assert SCHEMA.names[: len(ORDER)] == ORDER
    assert {field.column for fields in FIELDS.values() for field in fields} <= set(SCHEMA.names)


def test_rows_without_a_field_have_its_default():
    """An older version wrote them: into files without the column, or beside rows that have it."""
    member, offset = MemberMetadata("g", "m", "i"), OffsetCommitted("g", "t", "id", 0, 5, 3, "x", 7)
    rows = encode_records([member, MemberMetadata("g", "n", client_id="c"), offset], 1, 1, 1)
    older = rows.drop_columns(["subscribed_topic_names", "rebalance_timeout_ms", "leader_epoch"])
    texts = pa.array([None, "c", None], pa.string())
    older = older.set_column(older.column_names.index("client_id"), "client_id", texts)
    assert decode_rows(older, ValueCache()) == [
        member,
        MemberMetadata("g", "n", client_id="c"),
        OffsetCommitted("g", "t", "id", 0, 5, -1, "x", 7),
    ]
    settings = GroupConfigured("g", {"a": "b"})
    assert decode_rows(encode_records([settings], 1, 1, 1), ValueCache()) == [settings]


NEW_FIELDS = {
    "flag: bool = False": ("True", True),
    "note: Annotated[str, 'words'] = ''": ("'a'", "a"),
    "raw: bytes | None = None": ("b'\\0\\xff'", "AP8="),
    "marks: tuple[Long, ...] = ()": ("(1, 2)", [1, 2]),
    "spoken: tuple[Spoken, ...] = ()": (
        "(Spoken('range', b'\\xff'), Spoken('uniform'))",
        [{"name": "range", "sentMetadata": "/w=="}, {"name": "uniform", "sentMetadata": ""}],
    ),
    "said: Spoken | None = None": (
        "Spoken('range', b'\\xff')",
        {"name": "range", "sentMetadata": "/w=="},
    ),
}
SPOKEN = """class Spoken(msgspec.Struct, frozen=True, gc=False):
    name: str
    sent_metadata: bytes = b""


"""
CHECK = """
import json, sys
from coordinator.core.state.records import *
from coordinator.core.state.records import Spoken
from coordinator.core.state.groups import State
from coordinator.storage.record_decoder import ValueCache, decode_rows
from coordinator.storage.record_encoder import encode_records
from coordinator.trace.kafka_json import record_json
values = eval(sys.argv[1])
written = [MemberMetadata("g", "m", **values), MemberMetadata("g", "n"), Tombstone("topic")]
assert decode_rows(encode_records(written, 1, 1, 1), ValueCache()) == written
print(json.dumps(record_json(written[0], State())["value"]))
"""


def test_a_new_field_is_one_line(tmp_path):
    """As CONTRIBUTING.md says: the line, then a command for the page; nothing else is touched."""
    records, command, view = STEPS
    assert (records, command, view) == (
        "coordinator/core/state/records.py", "python docs/log_format.py", "spark_jobs/sql/",
    )  # fmt: skip
    for folder in ("assignors", "coordinator", "docs"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    last = "    server_assignor: Annotated[str | None"
    before, after = (tmp_path / records).read_text().split(last)
    head, body = before.split("class MemberMetadata")
    end = after.index("\n")
    lines = "".join(f"\n    {line}" for line in NEW_FIELDS)
    (tmp_path / records).write_text(
        f"{head}{SPOKEN}class MemberMetadata{body}{last}{after[:end]}{lines}{after[end:]}"
    )

    names = [line.partition(":")[0] for line in NEW_FIELDS]
    values = [
        f"{name!r}: {value}" for name, (value, _) in zip(names, NEW_FIELDS.values(), strict=True)
    ]
    printed = json.loads(python(tmp_path, "-c", CHECK, f"{{{', '.join(values)}}}"))
    assert [printed[name] for name in names] == [json_ for _, json_ in NEW_FIELDS.values()]
    python(tmp_path, *command.split()[1:])
    page = (tmp_path / "docs/design/log_format.md").read_text()
    assert f"`server_assignor`, {', '.join(f'`{name}`' for name in names)}, " in page
    assert "\n| `note` | `string` | words |\n| `raw` | `binary` | |\n" in page
    assert "| `spoken` | `list<struct<name: string, sent_metadata: binary>>` | |" in page


def python(folder, *arguments):
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
