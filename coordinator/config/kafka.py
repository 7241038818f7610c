"""Kafka's group settings under Kafka's names, with its defaults and bounds.

Of the coordinator (G-140, G-142), of classic groups (H-5…H-20), and of single groups (G-143,
G-144). Ours beside them begin with `consumer.assignor.`: options of sticky and weighted, whether
targets wait for approval, the engine, and who assigns for classic members.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from coordinator.errors import ConfigError

INT32_MAX = 2**31 - 1
POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")
ASSIGNORS = ("uniform", "range")
"""Kafka's own."""
ENGINES = ("auto", "local", "spark", "external")
CLASSIC_ASSIGNOR, OFF = "consumer.assignor.classic", "off"
"""The setting of a group by which Muster assigns for classic members; off: their leader does."""


def _list_assignors() -> tuple[str, ...]:
    """Return Kafka's assignors in its order, of which the first is the default, and then ours."""
    from assignors.registry import BUILT_IN  # noqa: PLC0415 - takes numpy along

    return (*ASSIGNORS, *(name for name in BUILT_IN if name not in ASSIGNORS))


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """Settings of the coordinator; times in ms."""

    session_timeout_ms: int = 45_000
    min_session_timeout_ms: int = 45_000
    max_session_timeout_ms: int = 60_000
    heartbeat_interval_ms: int = 5_000
    min_heartbeat_interval_ms: int = 5_000
    max_heartbeat_interval_ms: int = 15_000
    max_size: int = INT32_MAX
    migration_policy: str = "bidirectional"
    classic_max_size: int = INT32_MAX
    classic_min_session_timeout_ms: int = 6_000
    classic_max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    assignors: tuple[str, ...] = field(default_factory=_list_assignors)
    assignment_interval_ms: int = 1_000
    min_assignment_interval_ms: int = 0
    max_assignment_interval_ms: int = 15_000
    regex_refresh_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000


_NAMES = {
    "group.consumer.session.timeout.ms": "session_timeout_ms",
    "group.consumer.min.session.timeout.ms": "min_session_timeout_ms",
    "group.consumer.max.session.timeout.ms": "max_session_timeout_ms",
    "group.consumer.heartbeat.interval.ms": "heartbeat_interval_ms",
    "group.consumer.min.heartbeat.interval.ms": "min_heartbeat_interval_ms",
    "group.consumer.max.heartbeat.interval.ms": "max_heartbeat_interval_ms",
    "group.consumer.max.size": "max_size",
    "group.consumer.migration.policy": "migration_policy",
    "group.max.size": "classic_max_size",
    "group.min.session.timeout.ms": "classic_min_session_timeout_ms",
    "group.max.session.timeout.ms": "classic_max_session_timeout_ms",
    "group.initial.rebalance.delay.ms": "initial_rebalance_delay_ms",
    "group.consumer.assignors": "assignors",
    "group.consumer.assignment.interval.ms": "assignment_interval_ms",
    "group.consumer.min.assignment.interval.ms": "min_assignment_interval_ms",
    "group.consumer.max.assignment.interval.ms": "max_assignment_interval_ms",
    "group.consumer.regex.refresh.interval.ms": "regex_refresh_interval_ms",
    "offset.metadata.max.bytes": "offset_metadata_max_bytes",
    "offsets.retention.minutes": "offsets_retention_minutes",
    "offsets.retention.check.interval.ms": "offsets_retention_check_interval_ms",
}
KAFKA_NAMES = tuple(_NAMES)
_LOWEST = {"max_size": 1, "regex_refresh_interval_ms": 10_000, "min_assignment_interval_ms": 0}
_LOWEST |= {"assignment_interval_ms": 0, "max_assignment_interval_ms": 0}
_LOWEST |= {"initial_rebalance_delay_ms": 0}
_BOUNDED = ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms")


def kafka_config(settings: Mapping[str, object], base: KafkaConfig | None = None) -> KafkaConfig:
    """Read settings under Kafka's names; those left out keep the value of `base`.

    Raises
    ------
    ConfigError
        An unknown name, a value of another type or outside its bounds (G-144).
    """
    values: dict[str, object] = {}
    for name, value in settings.items():
        if name not in _NAMES:
            raise ConfigError(f"unknown setting {name!r}: the known ones are {', '.join(_NAMES)}")
        field = _NAMES[name]
        if field in _TEXTS:
            values[field] = _TEXTS[field](name, value)
            continue
        values[field] = _number(name, value)
        lowest = _LOWEST.get(field, 1)
        if int(str(values[field])) < lowest:
            raise ConfigError(f"{name} is {value}: give {lowest} or more")
    config = replace(base or KafkaConfig(), **values)  # type: ignore[arg-type]
    for field in _BOUNDED:
        low, high = _bounds(config, field)
        if not low <= getattr(config, field) <= high:
            kafka = next(name for name, ours in _NAMES.items() if ours == field)
            raise ConfigError(f"{kafka} is {getattr(config, field)}: give {low} to {high}")
    low, high = config.classic_min_session_timeout_ms, config.classic_max_session_timeout_ms
    if low > high:
        raise ConfigError(
            f"group.min.session.timeout.ms is {low}: give no more than "
            f"group.max.session.timeout.ms, {high}"
        )
    if config.heartbeat_interval_ms >= config.session_timeout_ms:
        raise ConfigError(
            f"group.consumer.heartbeat.interval.ms is {config.heartbeat_interval_ms}: give less "
            f"than the session timeout, {config.session_timeout_ms}"
        )
    return config


def _bounds(config: KafkaConfig, field: str) -> tuple[int, int]:
    return getattr(config, f"min_{field}"), getattr(config, f"max_{field}")


def _number(name: str, value: object) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not re.fullmatch(r"-?[0-9]+", text):
        raise ConfigError(f"{name} is {value!r}: give a whole number")
    if not -INT32_MAX - 1 <= int(text) <= INT32_MAX:
        raise ConfigError(f"{name} is {value}: give at most {INT32_MAX}")
    return int(text)


def _names(name: str, value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ConfigError(f"{name} is {value!r}: give names of assignors")
    found = tuple(part.strip() for part in parts)
    if not found or "" in found or len(set(found)) < len(found):
        raise ConfigError(f"{name} is {value!r}: give at least one name, each once")
    return found


def _policy(name: str, value: object) -> str:
    text = str(value).strip().lower()
    if text not in POLICIES:
        raise ConfigError(f"{name} is {value!r}: give one of {', '.join(POLICIES)}")
    return text


_TEXTS = {"assignors": _names, "migration_policy": _policy}
"""The settings that are not numbers."""


def kafka_settings(config: KafkaConfig) -> dict[str, str]:
    """Return every setting as text, under Kafka's name."""
    values = {name: getattr(config, field) for name, field in _NAMES.items()}
    return {n: ",".join(v) if isinstance(v, tuple) else str(v) for n, v in values.items()}


_GROUP_BOUNDED = {
    "consumer.session.timeout.ms": "session_timeout_ms",
    "consumer.heartbeat.interval.ms": "heartbeat_interval_ms",
    "consumer.assignment.interval.ms": "assignment_interval_ms",
}
ENGINE = "consumer.assignor.engine"
_COUNTS = ("consumer.assignor.max.moves", "consumer.assignor.defragment")
KAFKAS_OF_GROUPS = (*_GROUP_BOUNDED, "consumer.assignor.offload.enable")
"""Settings of groups that Kafka has, too."""
GROUP_NAMES = (
    *KAFKAS_OF_GROUPS,
    "consumer.assignor.imbalance",
    "consumer.assignor.max.moves",
    "consumer.assignor.defragment",
    "consumer.assignor.max.moved.weight",
    "consumer.assignor.tolerance",
    "consumer.assignor.improvement",
    "consumer.assignor.least.share",
    "consumer.assignor.rack",
    "consumer.assignor.approval",
    ENGINE,
    CLASSIC_ASSIGNOR,
)


def setting_types() -> dict[str, type]:
    """Return the type of every setting's value: bool, int, str, or tuple for a list."""
    node = KafkaConfig()
    return (
        {name: type(getattr(node, field)) for name, field in _NAMES.items()}
        | dict.fromkeys(GROUP_NAMES, str)
        | dict.fromkeys((*_GROUP_BOUNDED, *_COUNTS), int)
        | {"consumer.assignor.offload.enable": bool}
    )


def group_settings(config: KafkaConfig, settings: Mapping[str, object]) -> dict[str, str]:
    """Check the settings of one group; returns them as text.

    Raises
    ------
    ConfigError
        An unknown name, or a value outside its bounds (G-143, G-144).
    """
    checked: dict[str, str] = {}
    for name, value in settings.items():
        text = str(value).strip() if not isinstance(value, bool) else str(value).lower()
        wanted = _find_bound(config, name, text)
        if wanted:
            raise ConfigError(f"{name} is {value!r}: give {wanted}")
        checked[name] = text
    session = int(checked.get("consumer.session.timeout.ms", config.session_timeout_ms))
    heartbeat = int(checked.get("consumer.heartbeat.interval.ms", config.heartbeat_interval_ms))
    if heartbeat >= session:
        raise ConfigError(
            f"consumer.heartbeat.interval.ms is {heartbeat}: give less than the session timeout, "
            f"{session}"
        )
    return dict(sorted(checked.items()))


def own_group_settings(config: KafkaConfig, settings: Mapping[str, object]) -> dict[str, str]:
    """Check the settings that a node has of one group: those that its cluster cannot have.

    Raises
    ------
    ConfigError
        As `group_settings`; or a setting that is Kafka's, or for which a node has no use.
    """
    for name in settings:
        if name in KAFKAS_OF_GROUPS:
            raise ConfigError(
                f"{name} is Kafka's: set it in the cluster (kafka-configs --entity-type groups)"
            )
        if name == ENGINE:
            raise ConfigError(f"{name}: a node computes targets itself; leave it out")
    return group_settings(config, settings)


def group_defaults(config: KafkaConfig) -> dict[str, str | None]:
    """Return every setting of a group with what holds where the group says nothing."""
    times = {name: str(getattr(config, field)) for name, field in _GROUP_BOUNDED.items()}
    return times | {
        "consumer.assignor.offload.enable": "true",
        "consumer.assignor.imbalance": "0",
        "consumer.assignor.max.moves": None,  # as many as it takes
        "consumer.assignor.defragment": "0",
        "consumer.assignor.max.moved.weight": None,
        "consumer.assignor.tolerance": "1%",
        "consumer.assignor.improvement": "5%",
        "consumer.assignor.least.share": "0%",
        "consumer.assignor.rack": "prefer",
        "consumer.assignor.approval": "auto",
        "consumer.assignor.engine": "auto",
        CLASSIC_ASSIGNOR: OFF,
    }


_PERCENT = r"[0-9]{1,9}(\.[0-9]{1,9})?%"
_PATTERNS = {
    "consumer.assignor.imbalance": (
        rf"[0-9]{{1,9}}|{_PERCENT}",
        "a number of partitions or a share like 5%",
    ),
    "consumer.assignor.tolerance": (_PERCENT, "a share like 5%"),
    "consumer.assignor.improvement": (_PERCENT, "a share like 5%"),
    "consumer.assignor.least.share": (
        r"(100|[0-9]{1,2}(\.[0-9]{1,9})?)%",
        "a share of at most 100%",
    ),
    "consumer.assignor.max.moved.weight": (r"[0-9]{1,15}(\.[0-9]{1,9})?", "a weight from 0 on"),
}
_CHOICES = {
    "consumer.assignor.rack": ("prefer", "require", "ignore"),
    "consumer.assignor.approval": ("auto", "manual"),
    "consumer.assignor.engine": ENGINES,
}


def _find_bound(config: KafkaConfig, name: str, text: str) -> str | None:
    """Return what a setting of a group may be, None when this value is that."""
    if name in _GROUP_BOUNDED:
        low, high = _bounds(config, _GROUP_BOUNDED[name])
        return None if low <= _number(name, text) <= high else f"{low} to {high}"
    if name in _PATTERNS:
        pattern, wanted = _PATTERNS[name]
        return None if re.fullmatch(pattern, text) else wanted
    if name == "consumer.assignor.offload.enable":
        return None if text in {"true", "false"} else "true or false"
    if name in _COUNTS:
        return None if _number(name, text) >= 0 else "0 or more"
    if name in _CHOICES:
        return None if text in _CHOICES[name] else _list_choices(_CHOICES[name])
    if name == CLASSIC_ASSIGNOR:
        fine = text in {OFF, *config.assignors}
        return None if fine else f"{OFF} or {_list_choices(config.assignors)}"
    raise ConfigError(f"unknown setting {name!r}: a group has {', '.join(GROUP_NAMES)}")


def _list_choices(choices: tuple[str, ...]) -> str:
    return f"one of {', '.join(choices)}"


def group_value(config: KafkaConfig, settings: Mapping[str, str], name: str) -> int:
    """Return a time of a group: its own, clamped to today's bounds (G-144), else the default."""
    field = _GROUP_BOUNDED[name]
    if name not in settings:
        return int(getattr(config, field))
    low, high = _bounds(config, field)
    return min(max(int(settings[name]), low), high)
