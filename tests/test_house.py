"""The house rules that a machine can keep (docs/design/architecture.md)."""

from __future__ import annotations

import ast
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from coordinator.core.reasons import Reason
from spark_jobs.session.session import DELTA_CONF, LOCAL_CONF, LOOPBACK
from tests.conftest import ROOT
from tests.support import processes

PACKAGES = ("assignors", "coordinator", "muster", "pyspark_muster", "spark_jobs")
FILES = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
FUNCTION_LINES, FILE_LINES, FOLDER_FILES = 70, 500, 25
SOURCES = {".py", ".sql", ".md", ".toml"}
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef

UNORDERED = ("first", "last", "collect_list", "monotonically_increasing_id")
"""Their answers depend on how Spark's rows happen to lie."""


def name_of(file):
    return str(file.relative_to(ROOT))


@cache
def tree_of(file):
    return ast.parse(file.read_text())


def public_in(body):
    named = [node for node in body.body if isinstance(node, FUNCTIONS | ast.ClassDef)]
    return [node for node in named if not node.name.startswith("_")]


def test_functions_and_files_are_short():
    tests = (ROOT / "tests").rglob("*.py")
    long = [name_of(f) for f in (*FILES, *tests) if len(f.read_text().splitlines()) > FILE_LINES]
    for file in FILES:
        for node in ast.walk(tree_of(file)):
            lines = node.end_lineno - node.lineno + 1 if isinstance(node, FUNCTIONS) else 0
            if lines > FUNCTION_LINES:
                long += [f"{name_of(file)}: {node.name} has {lines} lines"]
    assert long == []


def test_folders_have_few_files():
    """Golden stores and answers are data: no one looks for a place there."""
    folders = Counter(
        str(file.parent.relative_to(ROOT))
        for top in (*PACKAGES, "benchmarks", "conf", "docs", "examples", "tests", "tools")
        for file in (ROOT / top).rglob("*")
        if file.suffix in SOURCES and "golden" not in file.parts
    )
    assert {name: files for name, files in folders.items() if files > FOLDER_FILES} == {}


def texts_in(tree):
    """Yield strings outside of docstrings, with the line; `{}` stands for what an f-string has."""
    docs = set()
    for node in ast.walk(tree):  # a docstring and an f-string come before what they have
        if isinstance(node, ast.Expr):
            docs.add(id(node.value))
        if not isinstance(node, ast.JoinedStr | ast.Constant):
            continue
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        docs |= {id(part) for part in parts if part is not node}
        if id(node) in docs:
            continue
        yield (
            node.lineno,
            "".join(
                str(getattr(part, "value", "{}")) if isinstance(part, ast.Constant) else "{}"
                for part in parts
            ),
        )


def spell_reasons(text):
    """Return the reasons that a text of Python can become: those whose last word it has."""
    if not re.search("[a-z]$", text):
        return []
    if "{}" not in text:  # nearly all
        return [one for one in Reason if text == one.replace("{}", "0")]
    wanted = re.compile("(.+)".join(map(re.escape, text.split("{}"))))
    return [one for one in Reason if wanted.fullmatch(one.replace("{}", "0"))]


def test_reasons_are_named_never_spelled():
    """Otherwise another wording of a reason would change what views and pages look for."""
    own = ROOT / "coordinator/core/reasons.py"
    found = [
        f"{name_of(file)}:{line}: {text!r}"
        for file in (*FILES, *(ROOT / "benchmarks").rglob("*.py"))
        if file != own
        for line, text in texts_in(tree_of(file))
        if spell_reasons(text)
    ]
    quoted = {f"'{word}'" for one in Reason for word in (one.value, one.code)}
    for file in (ROOT / "spark_jobs/sql").rglob("*.sql"):
        found += [f"{name_of(file)}: {word}" for word in quoted if word in file.read_text()]
    assert found == []


def test_spelled_reasons_are_found():
    tree = ast.parse(
        '''"""member left"""\nf("member left", f"{kind} timeout", f"plan {id} applied")'''
    )
    assert [text for _, text in texts_in(tree) if spell_reasons(text)] == [
        *("member left", "{} timeout", "plan {} applied")
    ]
    assert not any(map(spell_reasons, ("member", "plan {}: {}", "{} {}", "member {}", "lost")))


COMMAND_LINE = re.compile(r"(^|[\s(`])--[a-z]|`muster ")


def test_the_core_speaks_no_command_line():
    """Its errors reach callers in Python and in browsers too."""
    found = [
        f"{name_of(file)}:{node.lineno}: {node.value}"
        for file in sorted((ROOT / "coordinator" / "core").rglob("*.py"))
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if COMMAND_LINE.search(node.value)
    ]
    assert found == []
    assert COMMAND_LINE.search("plan with --undrain")
    assert COMMAND_LINE.search("`muster plan -o`")


CONSTANT = re.compile(r"(^|\.)_?[A-Z][A-Z0-9_]+$")
MAY_PATCH = re.compile(r"(setattr|patch)\(|\._?[A-Z][A-Z0-9_]+\b[^=\n]*=[^=]")
"""What every file has that patches a constant: the others, half of them, are not parsed."""


def patched_in(tree):
    """Yield names that tests patch, or assign to, in a module of ours."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in {"setattr", "patch"}:
            words = [one.values[-1] if isinstance(one, ast.JoinedStr) else one for one in node.args]
            yield from (w.value for w in words if isinstance(getattr(w, "value", None), str))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def test_no_test_patches_a_constant():
    """What a test needs otherwise is a parameter, or a setting."""
    found = [
        f"{name_of(file)}: {name}"
        for file in (ROOT / "tests").rglob("*.py")
        if MAY_PATCH.search(file.read_text())
        for name in patched_in(tree_of(file))
        if CONSTANT.search(name)
    ]
    assert found == []


@pytest.mark.parametrize(
    "statement",
    [
        "monkeypatch.setattr(module, 'LIMIT', 1)",
        "patch.setattr('package.module.LIMIT_S', 1)",
        "monkeypatch.setattr(f'package.{module}.LIMIT', 1)",
        "module.LIMIT = 1",
        "kept, module._LIMIT = module._LIMIT, 0",
    ],
)
def test_a_planted_patch_is_found(statement):
    assert MAY_PATCH.search(statement)
    assert any(CONSTANT.search(name) for name in patched_in(ast.parse(statement)))


def test_every_process_of_a_test_ends_with_it():
    """What starts one by `subprocess.Popen` itself leaves it when it fails."""
    tests = [file for file in (ROOT / "tests").rglob("test_*.py") if file != Path(__file__)]
    tests += (ROOT / "tests").rglob("conftest.py")
    assert [name_of(file) for file in tests if "Popen(" in file.read_text()] == []


def test_a_process_that_a_test_starts_is_ended():
    with processes.ended():
        left = processes.start([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        with processes.running(["sleep", "60"], start_new_session=True) as docs:
            assert (left.poll(), docs.poll()) == (None, None)
        assert docs.returncode == -signal.SIGKILL
        left.send_signal(signal.SIGSTOP)
    assert (left.returncode, left.stdin.closed) == (-signal.SIGKILL, True)


def test_what_is_public_says_what_it_is_for():
    silent = []
    for file in FILES:
        tree = tree_of(file)
        classes = [node for node in public_in(tree) if isinstance(node, ast.ClassDef)]
        nodes = [tree, *(node for body in (tree, *classes) for node in public_in(body))]
        silent += [
            f"{name_of(file)}: {getattr(node, 'name', 'the file')}"
            for node in nodes
            if not ast.get_docstring(node)
        ]
    assert silent == []


def test_nothing_on_spark_depends_on_how_rows_lie():
    in_sql = re.compile(rf"\b({'|'.join(UNORDERED)})\s*\(", re.IGNORECASE)
    found = []
    for file in (file for file in FILES if name_of(file).startswith("spark_jobs/")):
        for node in ast.walk(tree_of(file)):
            names = []
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                names = [node.func.attr]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyspark"):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                names = in_sql.findall(node.value)
            found += [f"{name_of(file)}: {name}" for name in names if name.lower() in UNORDERED]
    found += [
        name_of(file)
        for file in (ROOT / "spark_jobs").rglob("*.sql")
        if in_sql.search(file.read_text())
    ]
    assert found == []


def lint_imports(folder):
    """Check the contracts of a copy of the packages, not of the ones installed."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_planted_import_breaks_the_contracts(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in (*PACKAGES, "tests"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("golden"))
    done = lint_imports(tmp_path)
    assert done.returncode == 0, done.stdout
    for file, line in (
        ("assignors/range.py", "import random"),
        ("assignors/network_flow.py", "from assignors.plan import Plan"),
        ("coordinator/storage/tables/table_io.py", "import spark_jobs.jobs.target_job"),
    ):
        with (tmp_path / file).open("a") as planted:
            planted.write(f"\n{line}\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1
    for broken in (
        "assignors.range -> random",
        ".network_flow -> .plan",
        "coordinator.storage.tables.table_io -> spark_jobs.jobs.target_job",
    ):
        assert broken in done.stdout


def test_a_room_in_no_layer_breaks_the_contracts(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in (*PACKAGES, "tests"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("golden"))
    (tmp_path / "coordinator/nowhere.py").write_text('"""In no layer."""\n')
    done = lint_imports(tmp_path)
    assert done.returncode == 1
    assert "coordinator.nowhere" in done.stdout


@pytest.mark.parametrize(
    "statement",
    [
        "import assignors",
        "import coordinator.cli.main",
        "from coordinator.cli.main import main; sys.argv[1:] = ['assign', 'examples/group.json']; main()",
    ],
)
def test_spark_is_imported_only_when_it_is_used(statement):
    """A coordinator, and a command on the local engine, start fast and need no Java."""
    code = f"""
import atexit, sys
atexit.register(lambda: print("pyspark" in sys.modules))
{statement}"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "False"


def spark_defaults():
    lines = (ROOT / "conf/spark-defaults.conf").read_text().splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


def test_spark_submit_and_our_own_sessions_have_the_same_settings():
    submitted, own = spark_defaults(), DELTA_CONF | LOCAL_CONF | LOOPBACK
    assert DELTA_CONF.items() <= submitted.items()
    assert {key: submitted[key] for key in submitted.keys() & own} == {
        key: own[key] for key in submitted.keys() & own
    }
    # What only a submitted job says: the caller or the user gives these to a session of ours.
    assert submitted.keys() - own == {
        "spark.master", "spark.driver.memory", "spark.log.level",
    }  # fmt: skip
    # What only a session of ours says: it stays on this machine; a submitted job may not.
    assert own.keys() - submitted.keys() == {
        "spark.driver.bindAddress", "spark.driver.host",
        "spark.databricks.delta.retentionDurationCheck.enabled",
    }  # fmt: skip


def test_the_wheel_has_everything_that_runs(wheel):
    """What is missing here would be missing for every user."""
    packed = set(zipfile.ZipFile(wheel).namelist())
    ours = {
        str(file.relative_to(ROOT))
        for package in PACKAGES
        for file in (ROOT / package).rglob("*")
        if file.is_file() and file.suffix != ".pyc"
    }
    ours |= {f"spark_jobs/conf/{file.name}" for file in (ROOT / "conf").iterdir()}
    recorded = {"spark_jobs/demo_data/cases.jsonl", "spark_jobs/demo_topic/wide-00.jsonl"}
    assert ours | recorded == {name for name in packed if ".dist-info/" not in name}


def test_an_installed_wheel_finds_its_files(installed, muster, tmp_path):
    """conf/ and the demo's groups used to be in the clone only."""
    done = muster("conf", cwd=tmp_path, env=installed)
    found = [Path(line) for line in done.stdout.decode().splitlines()]
    assert {path.name: path.is_file() for path in found} == {
        "muster.toml": True, "spark-defaults.conf": True, "log4j2.properties": True,
        "assign.py": True,
    }  # fmt: skip
    assert all(path.is_relative_to(installed["PYTHONPATH"]) for path in found)
    one = muster("conf", "muster.toml", cwd=tmp_path, env=installed)
    assert (
        Path(one.stdout.decode().strip()).read_bytes() == (ROOT / "conf/muster.toml").read_bytes()
    )
    none = muster("conf", "muster.yaml", cwd=tmp_path, env=installed)
    assert none.returncode == 2
    assert b"'muster.yaml' does not come with Muster: give one of muster.toml, " in none.stderr
