"""Tables of the reference, made from the code: settings, metrics, errors, views, commands.

    python docs/tables.py metrics     # print one

`conf.py` puts them into the pages when the site is built.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import typer
from typer.core import TyperArgument

from coordinator.api.operations import BASE, OPERATIONS
from coordinator.api.problems import KINDS, MEANINGS, PREFIX
from coordinator.cli.main import ENTRY_POINTS
from coordinator.config import Config
from coordinator.config.kafka import KafkaConfig, group_defaults
from coordinator.core.reasons import Reason
from coordinator.core.state.groups import State
from coordinator.errors import ErrorCode
from coordinator.history.findings import SCHEMAS, TITLES
from coordinator.history.view_schemas import VIEW_SCHEMAS
from coordinator.member.states import ClientState
from coordinator.runtime.metrics import Metrics

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = ROOT / "conf" / "muster.toml"
KEY = "group_id"
SQL_TYPES = {
    "string": "STRING",
    "int32": "INT",
    "int64": "BIGINT",
    "bool": "BOOLEAN",
    "double": "DOUBLE",
}


def settings() -> str:
    """Return all settings with their defaults, and what conf/muster.toml says of each."""
    defaults = msgspec.to_builtins(Config())
    lines: list[str] = []
    for section, text, groups in read_settings(SETTINGS.read_text("utf-8")):
        lines += [f"### [{section}]", "", text, ""] if text else [f"### [{section}]", ""]
        for names, comment in groups:
            for name, value in names.items():
                if section != "kafka" and toml(defaults[section][name]) != value:
                    raise ValueError(f"{SETTINGS}: {section}.{name} is not its default")
            shown = ", ".join(f"`{name} = {value}`" for name, value in names.items())
            lines += ["", shown, f": {comment}" if comment else ""]
    return "\n".join(lines)


def read_settings(text: str) -> Iterator[tuple[str, str, list[tuple[dict[str, str], str]]]]:
    """Yield each section: its name, its introduction, its settings by comment."""
    section, about, comment = "", "", []
    groups: list[tuple[dict[str, str], str]] = []
    for line in [*text.splitlines(), "[]"]:
        if line.startswith("#"):
            comment.append(line.lstrip("# "))
        elif line.startswith("["):
            if section:
                yield section, about, groups
            section, about, groups, comment = line.strip("[]"), " ".join(comment), [], []
        elif "=" in line:
            name, _, value = line.partition(" = ")
            if comment or not groups:
                groups.append(({}, " ".join(comment)))
            groups[-1][0][name.strip('"')] = value
            comment = []
        else:
            comment = []


def toml(value: object) -> str:
    """Return a default as conf/muster.toml writes it."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, dict | tuple):
        return "{}" if isinstance(value, dict) else str(list(value)).replace("'", '"')
    return str(value).lower()


def group_settings() -> str:
    """Return the settings that a group may have of its own."""
    found = group_defaults(KafkaConfig())
    return table(("setting", "default"), ((code(name), code(found[name] or "")) for name in found))


def metrics() -> str:
    """Return every metric: its name as Prometheus shows it, its labels, its help."""
    counted = Metrics()
    counted.watch(State, lambda: "active")
    labels = {
        one._name: one._labelnames  # noqa: SLF001 - shown nowhere else before the first sample
        for one in vars(counted).values()
        if hasattr(one, "_labelnames")
    }
    rows = []
    for family in counted.registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        names = labels.get(family.name, getattr(family, "_labelnames", ()))
        shown = ", ".join(code(label) for label in names)
        rows.append((code(name), family.type, shown, family.documentation))
    return table(("metric", "type", "labels", "is"), sorted(rows))


def errors() -> str:
    """Return the error codes, and whether the same request may be sent again."""
    return table(
        ("code", "number", "retriable"),
        (
            (code(error.name), str(int(error)), "yes" if error.retriable else "")
            for error in sorted(ErrorCode)
            if error
        ),
    )


def reasons() -> str:
    """Return the code of each reason of an epoch, and its text."""
    return table(("code", "text"), ((code(one.code), code(one)) for one in Reason))


def views() -> str:
    """Return the columns of each view, with their types in Spark and in Arrow."""
    lines = []
    for view, schema in VIEW_SCHEMAS.items():
        lines += [f"## {view}", "", f"[What it says]({link_of(view)})", ""]
        rows = ((code(one.name), code(sql_type(one.type)), code(one.type)) for one in schema)
        lines += [table(("column", "type in SQL", "type in Arrow"), rows), ""]
    return "\n".join(lines)


def findings() -> str:
    """Return the columns of each finding of `muster doctor`."""
    lines = []
    for name, schema in SCHEMAS.items():
        columns = ", ".join(f"{code(one.name)} {one.type}" for one in schema if one.name != KEY)
        lines.append((code(name), TITLES[name], columns))
    return table(("finding", "is", "columns"), lines)


def http() -> str:
    """Return the operations of the HTTP API: paths, parameters, what they do."""
    rows = [
        (
            code(f"{one.method} {BASE}{one.path}"),
            ", ".join(code(parameter.name) for parameter in one.parameters),
            one.doc,
        )
        for one in OPERATIONS
    ]
    return table(("operation", "parameters", "answers"), rows)


def problems() -> str:
    """Return the kinds of problems that the HTTP API answers with."""
    statuses: dict[str, list[str]] = {}
    for status, kind in KINDS.items():
        statuses.setdefault(kind, []).append(str(int(status)))
    rows = [
        (code(f"{PREFIX}{kind}"), ", ".join(found), MEANINGS[kind])
        for kind, found in statuses.items()
    ]
    return table(("type", "status", "means"), rows)


def link_of(view: str) -> str:
    """Return the place in the guide that says what a view's columns mean."""
    for heading in re.findall(
        r"^### (`.*)$", (ROOT / "docs/guide/sql.md").read_text(), re.MULTILINE
    ):
        if f"`{view}`" in heading.partition(":")[0]:
            return "../guide/sql.md#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
    raise ValueError(f"docs/guide/sql.md has no heading for the view {view}")


def sql_type(arrow: pa.DataType) -> str:
    """Return a type of Arrow in Spark's SQL."""
    if pa.types.is_timestamp(arrow):
        return "TIMESTAMP"
    if pa.types.is_list(arrow):
        return f"ARRAY<{sql_type(arrow.value_type)}>"
    if pa.types.is_map(arrow):
        return f"MAP<{sql_type(arrow.key_type)}, {sql_type(arrow.item_type)}>"
    if pa.types.is_struct(arrow):
        return f"STRUCT<{', '.join(f'{one.name}: {sql_type(one.type)}' for one in arrow)}>"
    return SQL_TYPES[str(arrow)]


def commands() -> str:
    """Return each command with its arguments and options."""
    lines = []
    for name, command in sorted(all_commands().items()):
        words = [f"muster {name}", *(argument(one) for one in command.params if is_argument(one))]
        lines += [f"### muster {name}", "", plain(command.help), "", "```text"]
        lines += [" ".join([*words, "[OPTIONS]"]), "```", ""]
        rows = [(code(spelled(one)), shown_default(one), plain(one.help)) for one in command.params]
        lines += [table(("option", "default", "is"), rows), ""] if rows else []
    return "\n".join(lines)


def client_states() -> str:
    """Return the states of a member on its own side."""
    rows = [(code(state.name), state.value) for state in ClientState]
    return table(("state", "the member"), rows)


def all_commands() -> dict[str, Any]:
    """Return every command of `muster` by its name."""
    app = typer.Typer()
    for point in entry_points(group=ENTRY_POINTS):
        app.command(name=point.name)(point.load())
    return typer.main.get_command(app).commands  # type: ignore[attr-defined]


def is_argument(parameter: Any) -> bool:  # noqa: ANN401 - click's class, by way of typer
    """Whether a parameter is given by its place."""
    return isinstance(parameter, TyperArgument)


def argument(parameter: Any) -> str:  # noqa: ANN401 - the same
    """Return an argument as a usage line has it."""
    name = parameter.name.upper().strip("_")
    return name if parameter.required else f"[{name}]"


def spelled(parameter: Any) -> str:  # noqa: ANN401 - the same
    """Return how a parameter is written."""
    if is_argument(parameter):
        return argument(parameter)
    return ", ".join([*parameter.opts, *parameter.secondary_opts])


def shown_default(parameter: Any) -> str:  # noqa: ANN401 - the same
    """Return a parameter's default as --help shows it."""
    shown = parameter.show_default
    if isinstance(shown, str):
        return shown
    if parameter.required:
        return "required"
    value = parameter.default
    if value is None or value is False or callable(value):
        return ""
    return code(getattr(value, "value", value))


def plain(text: str | None) -> str:
    """Return a help text as one paragraph of Markdown."""
    return " ".join((text or "").split()).replace("<", "\\<")


def code(value: object) -> str:
    """Return a value as code, for a cell."""
    return f"`{value}`" if str(value) else ""


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table in Markdown."""
    cells = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in cells)


TABLES: dict[str, Callable[[], str]] = {
    "client_states": client_states,
    "commands": commands,
    "errors": errors,
    "findings": findings,
    "group_settings": group_settings,
    "http": http,
    "metrics": metrics,
    "problems": problems,
    "settings": settings,
    "reasons": reasons,
    "views": views,
}

if __name__ == "__main__":
    print(TABLES[sys.argv[1]]())
