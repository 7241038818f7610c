"""`muster assign --changes`: from the last plan and what has changed, as from new tables."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

BOTH = {"subscribed": ["clicks", "orders"]}
SPEC = {
    "topics": {"clicks": 6, "orders": 6},
    "members": {"ann": BOTH | {"owned": {"clicks": list(range(6))}}, "bob": BOTH, "cid": BOTH},
}
CHANGES = {
    "left": ["ann"],
    "joined": {"dan": BOTH},
    "resubscribed": {"cid": {"subscribed": ["orders"]}},
    "topics": {"orders": 9},
}
AFTER = {
    "topics": {"clicks": 6, "orders": 9},
    "members": {"bob": BOTH, "cid": {"subscribed": ["orders"]}, "dan": BOTH},
}


@pytest.fixture
def changes(tmp_path):
    path = tmp_path / "changes.json"
    path.write_text(json.dumps(CHANGES))
    return path


def write_tables(folder, spec):
    members = {
        "member_id": list(spec["members"]),
        "subscribed": [one["subscribed"] for one in spec["members"].values()],
    }
    pq.write_table(pa.table(members), folder / "members.parquet")
    topics = {"topic": list(spec["topics"]), "partitions": list(spec["topics"].values())}
    pq.write_table(pa.table(topics), folder / "topics.parquet")
    return ["--members", folder / "members.parquet", "--topics", folder / "topics.parquet"]


def answer(done):
    assert done.returncode == 0, done.stderr
    (found,) = done.stdout.splitlines()
    return json.loads(found)


def refused(done, said):
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    assert said in done.stderr.decode()


def test_a_spec_and_its_changes_are_the_spec_of_after(muster_here, tmp_path, changes):
    (tmp_path / "spec.json").write_text(json.dumps(SPEC))
    expected = answer(muster_here("assign", stdin=json.dumps(AFTER)))
    found = answer(muster_here("assign", tmp_path / "spec.json", "--changes", changes))
    assert found == expected
    report = muster_here("assign", tmp_path / "spec.json", "--changes", changes, "--report")
    assert answer(report)["reasons"] == {"owner left": 6, "nobody owned it": 9}


def test_tables_of_before_their_plan_and_changes_are_the_tables_of_after(
    muster_here, tmp_path, changes
):
    before = write_tables(tmp_path, SPEC)
    last = tmp_path / "last.parquet"
    answer(muster_here("assign", *before, "--output", last))
    out = tmp_path / "out.parquet"
    job = [*before, "--previous", last, "--changes", changes, "--output", out, "--run-id", "1"]
    done = answer(muster_here("assign", *job))
    assert (done["members"], done["partitions"], done["engine"]) == (3, 15, "local")
    assert done["reasons"]["owner left"] == 4
    (tmp_path / "after").mkdir()
    after = write_tables(tmp_path / "after", AFTER)
    again = tmp_path / "again.parquet"
    answer(muster_here("assign", *after, "--previous", last, "--output", again))
    assert pq.read_table(out) == pq.read_table(again)

    assert answer(muster_here("assign", *job))["already_written"]
    changes.write_text("{}")
    refused(muster_here("assign", *job), "run '1' wrote")


def test_changes_that_leave_no_member_must_be_allowed(muster_here, tmp_path, changes):
    before = write_tables(tmp_path, SPEC)
    changes.write_text(json.dumps({"left": list(SPEC["members"])}))
    refused(muster_here("assign", *before, "--changes", changes), "--allow-empty")
    done = muster_here("assign", *before, "--changes", changes, "--allow-empty")
    assert answer(done)["assignment"] == {}


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ('{"left": ["eve"]}', [], "member 'eve' has left or changed, but is not in the group"),
        ('{"joined": {"bob": {"subscribed": []}}}', [], "member 'bob' has joined, but is in the"),
        ('{"removed_topics": ["x"]}', [], "topic 'x' is removed, but is not in the group"),
        ("{", [], "not JSON"),
        ("{}", ["--engine", "spark"], "--changes are planned in process: use --engine local"),
        ("{}", ["--output", "."], "overlap: name another output"),
    ],
)
def test_changes_that_cannot_be_are_refused(muster_here, tmp_path, changes, text, words, said):
    before = write_tables(tmp_path, SPEC)
    changes.write_text(text)
    refused(muster_here("assign", *before, "--changes", changes, *words, cwd=tmp_path), said)
    assert changes.read_text() == text


def test_changes_are_of_one_group(muster_here, tmp_path, changes):
    refused(
        muster_here("assign", "--changes", changes, stdin=json.dumps(SPEC) * 2),
        "--changes are of one group, but standard input has 2: give one",
    )
    write_tables(tmp_path, SPEC)
    members = pq.read_table(tmp_path / "members.parquet")
    members = members.append_column("group_id", pa.array(["g"] * 3))
    pq.write_table(members, tmp_path / "members.parquet")
    tables = ["--members", tmp_path / "members.parquet", "--topics", tmp_path / "topics.parquet"]
    refused(muster_here("assign", *tables, "--changes", changes), "--changes are of one group, but")
    missing = muster_here("assign", "--changes", tmp_path / "none.json", stdin=json.dumps(SPEC))
    refused(missing, "none.json': No such file or directory")
    into = muster_here("assign", "--changes", changes, "--output", changes, stdin=json.dumps(SPEC))
    refused(into, "is also --changes, which it would replace")
    assert json.loads(changes.read_text()) == CHANGES
    in_store = muster_here("assign", "--store", tmp_path, "--group", "g", "--changes", changes)
    refused(in_store, "omit spec, tables, changes, output")
