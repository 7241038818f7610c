"""`muster assign` as users run it: specs and tables in, answers, reports and tables out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from coordinator.storage.tables.table_io import TableRef, read_delta, table_lock
from tests.conftest import GOLDEN, kill_when

SPEC = {
    "id": 3,
    "topics": {"a": 4, "b": 3},
    "members": {
        "m1": {"subscribed": ["a", "b"], "owned": {"a": [0, 1, 2, 3]}},
        "m2": {"subscribed": ["a", "b"]},
    },
}


def ok(done):
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def refused(done, *words, code=2):
    said = done.stderr.decode()
    assert done.returncode == code, said
    assert said.startswith("muster: ")
    assert said.count("\n") == 1
    assert done.stdout == b""
    for word in words:
        assert word in said
    return said


def test_the_example_of_the_page_on_formats(muster):
    """The answer is the one that docs/reference/formats.md shows."""
    (answer,) = ok(muster("assign", stdin=json.dumps(SPEC | {"assignor": "uniform"})))
    assert answer == {
        "id": 3,
        "assignor": "uniform",
        "assignment": {"m1": {"a": [0, 1, 2, 3]}, "m2": {"b": [0, 1, 2]}},
        "quality": {
            "loads": {"min": 3, "max": 4},
            "moved": 0,
            "moved_lower_bound": 0,
            "orphans": 3,
        },
    }


def test_json_lines_pairs_and_output_files(muster_here, tmp_path):
    lines = "\n".join(
        json.dumps(SPEC | {"id": n, "assignor": a}) for n, a in enumerate(["range", "sticky"])
    )
    file = tmp_path / "specs.jsonl"
    file.write_text(lines)
    first, second = ok(muster_here("assign", file, "--format", "ranges"))
    assert (first["id"], first["assignor"], second["assignor"]) == (0, "range", "sticky")
    assert second["assignment"]["m1"] == {"a": [[0, 4]]}
    out = tmp_path / "out.jsonl"
    assert ok(muster_here("assign", file, "--assignor", "range", "--output", out)) == []
    assert [json.loads(line)["assignor"] for line in out.read_text().splitlines()] == ["range"] * 2
    again = muster_here(
        "assign",
        stdin=json.dumps(
            {
                **SPEC,
                "members": {
                    m: {"subscribed": f["subscribed"], "owned": second["assignment"][m]}
                    for m, f in SPEC["members"].items()
                },
            }
        ),
    )
    assert ok(again)[0]["quality"]["moved"] == 0  # its own pairs are read back


def test_command_passes_the_golden_cases(muster_here):
    answers = ok(muster_here("assign", GOLDEN / "assignments/cases.jsonl", "--assignor", "range"))
    cases = [
        json.loads(line) for line in (GOLDEN / "assignments/cases.jsonl").read_text().splitlines()
    ]
    assert [a["assignment"] for a in answers] == [c["kafka"]["range"] for c in cases]


def test_options_of_sticky(muster_here):
    spec = {"topics": {"a": 8}, "members": {m: {"subscribed": ["a"]} for m in ("m1", "m2")}}
    spec["members"]["m1"]["owned"] = {"a": list(range(8))}

    def run(*words):
        return ok(muster_here("assign", "--assignor", "sticky", *words, stdin=json.dumps(spec)))[0]

    assert run()["quality"]["moved"] == 4
    assert run("--imbalance", "25%")["quality"]["moved"] == 3
    assert run("--imbalance", "4")["quality"]["moved"] == 0
    cut = run("--max-moves", "1")
    assert (cut["quality"]["moved"], cut["partial"]) == (1, True)


def test_reports(muster_here, tmp_path):
    (report,) = ok(muster_here("assign", "--report", stdin=json.dumps(SPEC)))
    assert (report["id"], report["valid"], report["loads"]["spread"]) == (3, True, 1)
    assert report["reasons"] == {"nobody owned it": 3}
    assert report["changes"][0]["to_member_id"] == "m2"
    assert [row["load"] for row in report["per_member"]] == [4, 3]
    for name, head in (("plot.png", b"\x89PNG"), ("plot.svg", b"<?xml")):
        ok(muster_here("assign", "--plot", tmp_path / name, stdin=json.dumps(SPEC)))
        assert (tmp_path / name).read_bytes().startswith(head)


def test_a_report_on_a_terminal_is_a_table(tmp_path):
    """Rich only when stdout is a terminal: here a pseudo-terminal."""
    (tmp_path / "spec.json").write_text(json.dumps(SPEC))
    command = f"{sys.executable} -m muster assign {tmp_path}/spec.json --report"
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"],
        capture_output=True,
        timeout=60,
        check=False,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
    )
    text = done.stdout.decode()
    for word in ("members, partitions", "spread 1", "why partitions changed owner", "b[0…2]"):
        assert word in text, text


@pytest.mark.parametrize(
    ("words", "stdin", "message"),
    [
        ([], "", "standard input is empty"),
        ([], "no", "standard input: not JSON"),
        ([], '{"id": 9, "topics": {"a": -1}, "members": {}}', "standard input, line 1 (id 9): topic 'a' has partition count -1"),
        ([], '{"topics": {}, "members": {}}\n{"topics": 1, "members": {}}', "line 2: topics is 1"),
        ([], '{"assignor": 7, "topics": {}, "members": {}}', "assignor is 7"),
        (["--assignor", "best"], "{}", "unknown assignor 'best': give one of range, sticky, uniform, weighted"),
        (["--imbalance", "1"], json.dumps(SPEC), "assignor 'uniform' has no option 'imbalance': omit it, or use sticky\n"),
        (["--assignor", "sticky", "--imbalance", "x"], json.dumps(SPEC), "imbalance is 'x'"),
        ([], json.dumps(SPEC | {"imbalance": 1}), "line 1 (id 3): unknown field 'imbalance': the fields of a group are id, assignor, topics, members"),
        (["nowhere.json"], "", "nowhere.json cannot be read: No such file"),
        (["--plot", "x.pdf"], json.dumps(SPEC), "give a name that ends in .png or .svg"),
        (["--plot", "no/x.png"], json.dumps(SPEC), "folder not found"),
        (["--members", "m"], "", "give either a spec, or --members and --topics"),
        (["--run-id", "r"], json.dumps(SPEC), "require --members and --topics"),
        (["--allow-empty"], json.dumps(SPEC), "require --members and --topics"),
        (["--members", "m", "--topics", "t"], "", "--members 'm' not found"),
        (["--config", "no.toml"], "{}", "no.toml cannot be read"),
    ],
)  # fmt: skip
def test_bad_input(muster_here, tmp_path, words, stdin, message):
    refused(muster_here("assign", *words, stdin=stdin, cwd=tmp_path), message)


@pytest.fixture
def tables(tmp_path):
    """Forty members in two classes, two topics; members as Parquet, topics as Delta."""
    ids = [f"m{n:02d}" for n in range(40)]
    members = pa.table(
        {"member_id": ids, "subscribed": [["a", "b"] if n % 2 else ["a"] for n in range(40)]}
    )
    pq.write_table(members, tmp_path / "members.parquet")
    write_deltalake(tmp_path / "topics", pa.table({"topic": ["a", "b"], "partitions": [100, 50]}))
    return tmp_path


def job(run, tables, *words, members="members.parquet"):
    return run("assign", "--members", members, "--topics", "topics", *words, cwd=tables)


def content(path, version=None):
    rows = read_delta(DeltaTable(path, version=version)).to_pylist()
    return sorted(tuple(row.values()) for row in rows)


def test_the_nightly_job(muster_here, tables):
    (first,) = ok(job(muster_here, tables, "--output", "out", "--run-id", "monday"))
    assert (first["version"], first["already_written"], first["orphans"]) == (0, False, 150)
    (again,) = ok(job(muster_here, tables, "--output", "out", "--run-id", "monday"))
    assert again == first | {"already_written": True}
    fewer = read = pq.read_table(tables / "members.parquet").slice(0, 36)
    pq.write_table(read, tables / "fewer.parquet")
    (second,) = ok(
        job(muster_here, tables, "--output", "out", "--run-id", "tuesday", members="fewer.parquet")
    )
    assert second["version"] == 1
    assert second["moved"] < 10  # the output's own content was the previous assignment
    assert len({row[0] for row in content(tables / "out")}) == len(fewer)
    (again,) = ok(job(muster_here, tables, "--output", "out", "--run-id", "monday"))
    assert again == first | {"already_written": True}  # as it was, whatever is there now
    (old,) = ok(job(muster_here, tables, "--previous", "out@0", "--report"))
    assert (old["moved"], old["orphans"]) == (0, 0)


def test_deleted_topics_are_dropped_from_the_previous_assignment(muster_here, tables):
    ok(job(muster_here, tables, "--output", "out"))
    write_deltalake(
        tables / "topics", pa.table({"topic": ["a"], "partitions": [60]}), mode="overwrite"
    )
    pq.write_table(
        pa.table({"member_id": ["m00", "m01"], "subscribed": [["a"], ["a"]]}),
        tables / "two.parquet",
    )
    before = content(tables / "out")
    words = ["--output", "out"]
    said = "90 of 150 partitions of the previous assignment are no longer in topics, but only 30 may be"
    refused(
        job(muster_here, tables, *words, members="two.parquet"), said, "give --max-forgotten 90"
    )
    refused(job(muster_here, tables, *words, "--max-forgotten", "59.9%"), "89 may be dropped")
    refused(job(muster_here, tables, *words, "--max-forgotten", "x"), "max_forgotten is 'x'")
    assert content(tables / "out") == before
    words += ["--max-forgotten", "60%"]
    (done,) = ok(job(muster_here, tables, *words, members="two.parquet"))
    assert (done["forgotten"], done["partitions"]) == (90, 60)


def test_a_group_without_members_is_refused(muster_here, tables):
    ok(job(muster_here, tables, "--output", "out"))
    before = content(tables / "out")
    pq.write_table(pq.read_table(tables / "members.parquet").slice(0, 0), tables / "none.parquet")
    none = {"members": "none.parquet"}
    refused(
        job(muster_here, tables, "--output", "out", **none), "members is empty", "--allow-empty"
    )
    assert content(tables / "out") == before
    (done,) = ok(job(muster_here, tables, "--output", "out", "--allow-empty", **none))
    assert (done["members"], content(tables / "out")) == (0, [])


@pytest.mark.parametrize("output", ["out", "out.parquet"])
def test_run_id_cannot_be_reused_for_another_job(muster_here, tables, output):
    """Done again it is what it was; asked for something else it is refused."""
    words = ["--output", output, "--run-id", "monday"]
    (first,) = ok(job(muster_here, tables, *words))
    before = listing(tables / output), (tables / output).stat().st_mtime_ns
    (again,) = ok(job(muster_here, tables, *words, "--previous", output))
    assert again == first | {"already_written": True}
    shutil.copy(tables / "members.parquet", tables / "same.parquet")
    assert ok(job(muster_here, tables, *words, members="same.parquet")) == [again]
    pq.write_table(pq.read_table(tables / "same.parquet").slice(1), tables / "other.parquet")
    said = f"run 'monday' wrote '{output}' with"
    others = [
        (["--assignor", "range"], f"{said} assignor 'uniform', not 'range': give another"),
        (["--previous", "claims"], f"{said} previous not given, not claims (digest "),
    ]
    pq.write_table(pa.table([[]] * 4, schema=claim_schema()), tables / "claims")
    for more, message in others:
        refused(job(muster_here, tables, *words, *more), message)
    message = f"{said} members members.parquet (digest "
    refused(job(muster_here, tables, *words, members="other.parquet"), message)
    write_deltalake(tables / "topics", pa.table({"topic": ["a"], "partitions": [1]}), mode="append")
    refused(job(muster_here, tables, *words), f"{said} topics topics@0, not topics@1")
    assert (listing(tables / output), (tables / output).stat().st_mtime_ns) == before


def test_run_whose_commit_was_cleaned_up_is_still_known(muster_here, tables):
    """Delta keeps the run's id permanently and what it said for a month."""
    words = ["--output", "out", "--run-id", "monday"]
    ok(job(muster_here, tables, *words))
    ok(job(muster_here, tables, "--output", "out"))
    DeltaTable(tables / "out").create_checkpoint()
    (tables / "out" / "_delta_log" / f"{0:020d}.json").unlink()
    (again,) = ok(job(muster_here, tables, *words))
    assert (again["version"], again["engine"], again["already_written"]) == (None, None, True)


def test_output_to_parquet(muster_here, tables):
    ok(job(muster_here, tables, "--output", "out.parquet"))
    (done,) = ok(job(muster_here, tables, "--output", "out.parquet"))
    assert (done["moved"], done["orphans"], done["version"]) == (0, 0, None)
    assert pq.read_table(tables / "out.parquet")["partition_count"].to_pylist()


def test_tables_on_standard_output(muster_here, tables):
    (answer,) = ok(job(muster_here, tables))
    assert len(answer["assignment"]) == 40


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--previous", "topics@7"], "'topics' has no version 7: its newest is 0"),
        (["--previous", "topics@x"], "'x' is not a version"),
        (
            ["--previous", "topics"],
            "previous: column 'member_id' is missing (found topic, partitions)",
        ),
        (["--previous", "negative"], "previous: member 'm00', topic 'a' has first_partition -1"),
        (
            ["--previous", "text"],
            "previous: column 'first_partition' is string, expected an integer",
        ),
        (["--owned", "junk"], "'junk' is neither a Delta table nor Parquet"),
        (["--owned", "members.parquet@1"], "is not a Delta table, so it has no version 1"),
        (
            ["--owned", "topics", "--previous", "topics"],
            "--owned and --previous exclude each other",
        ),
    ],
)
def test_bad_tables(muster_here, tables, words, message):
    (tables / "junk").write_text("junk")
    for name, first in (("negative", -1), ("text", "0")):
        row = {"member_id": "m00", "topic": "a", "first_partition": first, "partition_count": 1}
        pq.write_table(pa.Table.from_pylist([row]), tables / name)
    refused(job(muster_here, tables, *words), message)
    ok(job(muster_here, tables, "--output", "out"))
    before = content(tables / "out")
    refused(job(muster_here, tables, *words, "--output", "out"), message)
    assert content(tables / "out") == before


def listing(folder):
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("topics", "--output 'topics' is also --topics, which it would replace"),
        ("../{}/members.parquet", "is also --members"),
        ("topics/out", "--output 'topics/out' and --topics 'topics' overlap"),
        (".", "overlap: name another output"),
        ("claims", "--output 'claims' is also --owned"),
        ("out.json", "for JSON, omit --output and redirect what is printed"),
        ("out.CSV", "must be a Delta table or a .parquet file"),
        ("s3://bucket/out.parquet", "on object storage an output is a Delta table"),
        ("file", "is a file: name a folder"),
        ("full", "is a folder with other content"),
        ("a\\b", "in its path, and Delta would take that for another path"),
        ("a%20b", "has '%20' in its path, and Delta would take that for another path"),
        ("full.parquet", "is a folder of Parquet files that Muster did not write"),
    ],
)
def test_output_over_other_content_is_refused(muster_here, tables, output, message):
    (tables / "file").write_text("mine")
    for name in ("full", "full.parquet"):
        (tables / name).mkdir()
        pq.write_table(pa.table({"mine": [1]}), tables / name / "part.parquet")
    owned = pa.table([["m00"], ["a"], [0], [1]], schema=claim_schema())
    write_deltalake(tables / "claims", owned)
    before = listing(tables)
    words = ["--output", output.format(tables.name), "--owned", "claims"]
    refused(job(muster_here, tables, *words), message)
    assert listing(tables) == before


def claim_schema():
    numbers = [(name, pa.int32()) for name in ("first_partition", "partition_count")]
    return pa.schema([("member_id", pa.string()), ("topic", pa.string()), *numbers])


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("spec.json", "--output 'spec.json' is also the spec"),
        ("out.parquet", "the assignment of a spec is JSON, name it .json"),
        ("folder", "is a folder: the assignment of a spec is a JSON file"),
        ("no/out.json", "folder not found"),
    ],
)
def test_bad_outputs_of_a_spec_are_refused(muster_here, tmp_path, output, message):
    (tmp_path / "folder").mkdir()
    (tmp_path / "spec.json").write_text(json.dumps(SPEC))
    before = listing(tmp_path)
    refused(muster_here("assign", "spec.json", "--output", output, cwd=tmp_path), message)
    assert listing(tmp_path) == before


def test_locked_output_is_not_changed(muster, muster_here, tables):
    ok(job(muster_here, tables, "--output", "out"))
    with table_lock(str(tables / "out")):
        said = refused(job(muster, tables, "--output", "out"), "out is being written by", code=3)
        assert f"process {os.getpid()}" in said
    ok(job(muster_here, tables, "--output", "out"))


@pytest.mark.parametrize("moment", ["locked", "written", "committed"])
def test_killed_run_leaves_the_old_or_the_new_content(muster_here, tables, moment):
    ids = [f"m{n:05d}" for n in range(20_000)]
    many = pa.table({"member_id": ids, "subscribed": [["a", "b"]] * len(ids)})
    pq.write_table(many, tables / "many.parquet")
    more = pa.table({"topic": ["a", "b"], "partitions": [40_000, 7]})
    write_deltalake(tables / "topics", more, mode="overwrite")
    words = ["--output", "out"]
    ok(job(muster_here, tables, *words, members="many.parquet"))
    lock, out = tables / "_locks" / "out", tables / "out"
    files = len(list(out.glob("*.parquet")))
    ready = {
        "locked": lambda: lock.stat().st_size > 0,
        "written": lambda: len(list(out.glob("*.parquet"))) > files,
        "committed": (out / "_delta_log" / f"{1:020d}.json").exists,
    }
    command = [sys.executable, "-m", "coordinator", "assign", "--members", "many.parquet"]
    killed = kill_when(ready[moment], [*command, "--topics", "topics", *words], cwd=tables)
    assert killed or moment == "committed"  # then there is little left to do
    table = TableRef.of(str(out), "out").pin()
    assert sum(table.read("out")["partition_count"].to_pylist()) == 40_007
    versions = {"locked": {0}, "written": {0, 1}, "committed": {1}}
    assert table.version in versions[moment]
    ok(job(muster_here, tables, *words, members="many.parquet"))  # no lock is left


def test_help_and_version(muster_here):
    assert b"assign" in muster_here("--help").stdout
    assert muster_here("--version").stdout == b"muster 0.3.0\n"
    assert muster_here("no-such-command").returncode == 2


def test_shell_completion():
    words = {"_MUSTER_COMPLETE": "complete_bash", "COMP_WORDS": "muster as", "COMP_CWORD": "1"}
    code = "import sys; sys.argv[0] = 'muster'; from coordinator.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | words, capture_output=True, check=False
    )
    assert done.stdout.split() == [b"assign"]
