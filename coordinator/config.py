"""config: what can be set, with its defaults. Pure: the text comes from the caller.

`conf/muster.toml` is these defaults with comments; a test keeps the two alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from assignors.plan import EXACT_EDGES


class ConfigError(ValueError):
    """A setting that cannot be used; the message names it and the remedy."""


@dataclass(frozen=True, slots=True)
class PlanConfig:
    """How assignments are planned."""

    exact_edges: int = EXACT_EDGES


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Where assignments are computed."""

    local_rows_max: int = 10_000_000


@dataclass(frozen=True, slots=True)
class ReportConfig:
    """How much a report looks at."""

    rows_max: int = 1_000_000
    members_shown: int = 20


@dataclass(frozen=True, slots=True)
class Config:
    """All settings."""

    plan: PlanConfig = field(default_factory=PlanConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    report: ReportConfig = field(default_factory=ReportConfig)


def parse(text: str, where: str) -> Config:
    """Read settings from TOML; what is left out has its default.

    Raises
    ------
    ConfigError
        Not TOML, an unknown name, a value of another type or outside its bounds.
    """
    try:
        tree: dict[str, Any] = msgspec.toml.decode(text)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{where}: not TOML: {error}") from None
    _refuse_unknown(tree, where)
    try:
        config = msgspec.convert(tree, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from None
    for section, name, value in (
        ("plan", "exact_edges", config.plan.exact_edges),
        ("engine", "local_rows_max", config.engine.local_rows_max),
        ("report", "rows_max", config.report.rows_max),
        ("report", "members_shown", config.report.members_shown),
    ):
        if value < 0:
            raise ConfigError(f"{where}: {section}.{name} is {value}: give 0 or more")
    return config


def _refuse_unknown(tree: dict[str, Any], where: str) -> None:
    known = msgspec.to_builtins(Config())
    for section, settings in tree.items():
        if section not in known:
            raise ConfigError(
                f"{where}: unknown section [{section}]: the sections are {', '.join(known)}"
            )
        for name in settings if isinstance(settings, dict) else ():
            if name not in known[section]:
                raise ConfigError(
                    f"{where}: unknown setting {section}.{name}: "
                    f"[{section}] has {', '.join(known[section])}"
                )
