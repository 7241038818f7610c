"""CONTRIBUTING.md and the page on architecture name the right files for a change."""

from __future__ import annotations

import re

import pytest

from assignors.loads.constraints import KINDS
from tests.conftest import ROOT
from tests.docs.test_paths import LISTED, PATH

PLACE = re.compile(f"{PATH.pattern}|`(pyproject.toml)`")
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
REGISTERED = {
    "an assignor": {
        "assignors/uniform.py": r'^    spark_twin: ClassVar\[str\] = "spark_jobs.assignors.uniform:',
        "assignors/registry.py": r"^    UniformAssignor,",
        "spark_jobs/assignors/": r'^TWIN = Twin\("uniform", ',
        "tests/assignors/test_properties.py": r'^    \("uniform", \{',
        "tests/spark/test_assignors.py": r'^    "uniform": ',
    },
    "a field of a record": {
        "coordinator/core/state/records.py": r"^    rack_id: ",
        "docs/design/log_format.md": r"^\| `rack_id` \| `string` \|",
        "spark_jobs/sql/": r"^ +max_by\(rack_id, position\)",
    },
    "an API, or a version of one": {
        "coordinator/wire/codec.py": r"^    Api\.LIST_GROUPS: \(\d+, \d+\),",
        "coordinator/wire/apis/": r"^ +Api\.LIST_GROUPS: list_groups,",
        "coordinator/wire/authorization.py": r"^    Api\.LIST_GROUPS: _list_groups,",
        "tests/wire/test_codec.py": r"^KNOWN = VERSIONS \| ",
        "tests/wire/test_group_apis.py": r"ask\(Api\.LIST_GROUPS, ",
        "tests/support/wire_cases/": r"^ +yield Case\(shown, Api\.LIST_GROUPS, ",
        "docs/guide/serving.md": r"^\| ListGroups \| \d",
    },
    "a client's quirk": {
        "coordinator/wire/quirks.py": r"^NEEDS_PRODUCE = Quirk\(",
        "tests/wire/test_quirks.py": r"^def test_quirks_are_in_one_file",
    },
    "a view": {
        "coordinator/history/frames.py": r'^    "partition_owners": ViewDefinition\(',
        "spark_jobs/sql/": r"^spark_jobs/sql/partition_owners\.sql$",
        "spark_jobs/sql/steps/": r"^spark_jobs/sql/steps/owned\.sql$",
        "tests/sql/": r"^FROM partition_owners",
        "docs/guide/sql.md": r"^### `partition_owners`",
    },
    "a kind of constraint": {
        "assignors/loads/constraints.py": r"^PIN, EXCLUDE, COLOCATE, ANTI_AFFINITY = ",
        "assignors/weighted/": r"\brule\.kind in \(PIN, EXCLUDE\)",
        "assignors/loads/held_rules.py": r"\brule\.kind in \(PIN, EXCLUDE\)",
        "coordinator/core/plans/explain.py": r"\brule\.kind in \(PIN, EXCLUDE\)",
        "docs/reference/formats.md": r"^\| `exclude` \| ",
        "tests/assignors/exact_judge.py": r'^KINDS = \(.*"exclude"',
    },
    "a metric": {
        "coordinator/runtime/metrics.py": r'^ +"load_spread", "',
        "tests/runtime/test_coordinator.py": r"'load_spread\{group=",
        "docs/guide/operations.md": r"^\|.* `load_spread` ",
    },
    "an error code": {
        "coordinator/errors/codes.py": r"^    STALE_MEMBER_EPOCH = 113$",
        "docs/reference/errors.md": r"^\| STALE_MEMBER_EPOCH \| ",
    },
    "a setting": {
        "coordinator/config/settings.py": r"^    max_failures: int = 3$",
        "conf/muster.toml": r"^max_failures = 3$",
    },
    "a command": {
        "coordinator/cli/": r"^def compact\(",
        "spark_jobs/cli/": r"^def sql\(",
        "pyproject.toml": r'^compact = "coordinator\.cli\.compact:compact"$',
        "coordinator/cli/main.py": r'^    "Look after a store": \(.*"compact"',
        "docs/reference/commands.md": r"^\| `muster compact` \| ",
    },
}
"""How each place of a list registers one of its kind that is there: a line, or a file's name."""
FOUND = {
    "add an error code": ("coordinator/errors/codes.py", r"^class ErrorCode\("),
    "add a field to a record": ("coordinator/core/state/records.py", r"^class MemberMetadata\(Record"),
    "add a metric": ("coordinator/runtime/metrics.py", r"^class Metrics\b"),
    "add a version of an API": ("coordinator/wire/codec.py", r"^VERSIONS: dict"),
    "add a setting": ("coordinator/config/settings.py", r"^class EngineConfig:"),
    "add a command": ("pyproject.toml", r'^\[project\.entry-points\."muster\.commands"\]'),
    "change how long offsets are kept": (
        "coordinator/core/offsets.py", r"^    kept_ms = config\.kafka\.offsets_retention_minutes",
    ),
    "add a task that repeats in the background": (
        "coordinator/runtime/background_tasks.py", r"^class PeriodicTask\b",
    ),
    "add an audit action": ("coordinator/core/audit.py", r"^GROUP_DELETED, .* = "),
    "add an assignor": ("assignors/registry.py", r"^    UniformAssignor,"),
    "add a setting of a group": ("coordinator/config/kafka.py", r"^GROUP_NAMES = \("),
    "fix the lease": ("coordinator/storage/lease.py", r"_config\.ttl_ms"),
    "add a finding of `muster doctor`": (
        "coordinator/history/findings/limits.py", r"^_FINDINGS = \{",
    ),
    "add a view": ("coordinator/history/frames.py", r"^VIEWS = \{"),
    "add a page": ("coordinator/web/app.py", r'^        _page\(site, "/audit"'),
    "change the format of a snapshot": (
        "coordinator/storage/snapshot_table.py", r"^SNAPSHOT_SCHEMA = ",
    ),
    "add a kind of constraint": ("assignors/loads/constraints.py", r"^class ConstraintRow:"),
    "add a kind of store": ("coordinator/storage/tables/store_files.py", r"^SCHEMES = \{"),
    "work around what one client does": ("coordinator/wire/quirks.py", r"^class Quirk\("),
    "add a reason for an epoch": ("coordinator/core/reasons.py", r"^class Reason\(StrEnum\)"),
    "add a quota": ("coordinator/config/settings.py", r"^class QuotasConfig:"),
    "change how commits are batched": ("coordinator/runtime/event_loop.py", r"^REQUESTS_A_ROUND"),
    "find out why a Spark stage is slow": (
        "spark_jobs/jobs/target_job.py", r'^    say\("sorting", ',
    ),
}  # fmt: skip
"""Where a newcomer to the project finds each change, and what is there."""


def lists():
    for section in PAGE.partition("## How to add")[2].partition("\n## ")[0].split("\n### ")[1:]:
        heading, _, text = section.partition("\n")
        bullets = re.findall(r"^- .*(?:\n  .*)*", text, re.MULTILINE)
        yield heading, [path for bullet in bullets for path in map("".join, PLACE.findall(bullet))]


LISTS = dict(lists())


def lines_of(path):
    """Return the names of the files that a path is, and their lines."""
    files = [name for name in LISTED if name == path or name.startswith(path.rstrip("/") + "/")]
    assert files, path
    return "\n".join([*files, *((ROOT / name).read_text("utf-8") for name in files)])


def test_every_place_of_a_list_has_an_example():
    assert {kind: [*places] for kind, places in REGISTERED.items()} == LISTS


@pytest.mark.parametrize("kind", REGISTERED)
def test_the_places_of_a_list_register_its_example(kind):
    for path, registers in REGISTERED[kind].items():
        assert re.search(registers, lines_of(path), re.MULTILINE), path


def ways():
    """Return where each change ends, by what one wants to do."""
    page = (ROOT / "docs/design/architecture.md").read_text(encoding="utf-8")
    table = page.partition("## Where to change what")[2].partition("\n## ")[0]
    rows = [row.strip("| ").split(" | ") for row in table.splitlines() if row.startswith("| ")]
    return {what: where for what, _, where in rows}


@pytest.mark.parametrize("change", FOUND)
def test_the_way_to_a_change_ends_where_its_kind_is_registered(change):
    path, registers = FOUND[change]
    assert f"`{path}`" in ways()[change]
    assert re.search(registers, lines_of(path), re.MULTILINE), path


@pytest.mark.parametrize("kind", KINDS)
def test_the_way_to_a_constraint_passes_where_each_kind_is_known(kind):
    """Where rules are read, and where kinds are distinguished."""
    named = re.compile(rf"\b{kind.upper()}\b")
    first, *others = [
        (ROOT / file).read_text() for file in PATH.findall(ways()["add a kind of constraint"])
    ]
    assert named.search(first)
    assert any(named.search(text) for text in others)


@pytest.mark.parametrize(
    "view", sorted((ROOT / "spark_jobs/sql").glob("*.sql")), ids=lambda file: file.stem
)
def test_a_view_says_why_it_is_sql_as_well_as_arrow(view):
    head = re.match(r"(--.*\n)+", view.read_text(encoding="utf-8"))
    assert re.search(r"^-- In SQL, too, (since|as) .{20}", head[0], re.MULTILINE)
