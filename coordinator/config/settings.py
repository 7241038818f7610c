"""All settings with their defaults. Pure: the caller reads the file.

`conf/muster.toml` is these defaults with comments; a test keeps the two alike.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from assignors.errors import SpecError
from assignors.option_values import EXACT_EDGES, LONG_RANGES, parse_share
from coordinator.config.kafka import KafkaConfig, kafka_config, own_group_settings
from coordinator.errors import ConfigError

__all__ = ["Config", "ConfigError", "KafkaConfig", "folder_mode", "parse"]

FOLDER_MODES = {
    "0700": "its owner alone",
    "0750": "its group reads",
    "0770": "its group reads and writes",
    "0755": "everybody reads",
    "0775": "everybody reads, its group writes",
}
"""Modes that a store may have: only its owner and its group ever write."""
INTERVALS = {"backoff_ms", "maintenance_ms", "poll_ms", "proposals_ms", "renew_ms", "retry_ms"}
"""How long what is done again waits: of 0 it would never rest."""
TIMEOUTS = {"answer_ms", "connect_timeout_ms", "request_timeout_ms"}
"""How long an answer is waited for: in 0 ms none can come."""
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
LogFormat: TypeAlias = Literal["text", "json"]
KAFKA = "kafka://"
"""Begins the URL of a source that is a Kafka cluster: topics, or weights."""
MEMBERS_SHOWN_MAX = 1_000
"""Of one trace: ten of the largest may wait for a collector (telemetry.py)."""
REGION = re.compile(r"[A-Za-z0-9-]*")


@dataclass(frozen=True, slots=True)
class PlanConfig:
    """How assignments are planned."""

    exact_edges: int = EXACT_EDGES
    long_ranges: int = LONG_RANGES


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Where assignments are computed."""

    engine: Literal["auto", "local", "spark"] = "auto"
    local_mib_max: int = 8_192
    step_rows_max: int = 20_000
    driver_rows: int = 2_500_000
    timeout_ms: int = 600_000
    backoff_ms: int = 500
    max_failures: int = 3
    proposals_ms: int = 500


@dataclass(frozen=True, slots=True)
class CostConfig:
    """What a computation costs on each engine, a member, a distinct subscription, a range."""

    local_ms: int = 1
    local_ns_member: int = 1_294
    local_us_class: int = 1
    local_ns_range: int = 672
    local_bytes_member: int = 533
    local_bytes_range: int = 331
    table_bytes_member: int = 755
    table_bytes_range: int = 264
    spark_ms: int = 2_065
    spark_ns_member: int = 6_470
    spark_us_class: int = 958
    spark_ns_range: int = 5_424


@dataclass(frozen=True, slots=True)
class LogConfig:
    """How the log is written, and how long replaced files and targets are kept."""

    folder_mode: str = "0700"
    fsync: bool = True
    linger_ms: int = -1
    batch_records_max: int = 50_000
    reopen_commits: int = 100
    pack_commits: int = 200
    snapshot_rows: int = 100_000
    files_kept_ms: int = 3_600_000
    commits_kept_ms: int = 10_000
    maintenance_ms: int = 250
    answer_ms: int = 15_000
    retention_days: int = 90


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """When a coordinator may claim a store, and how often it looks whether it still has it."""

    ttl_ms: int = 10_000
    renew_ms: int = 2_000
    check_ms: int = 500


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """How object stores are reached; credentials come only from the environment."""

    endpoint: str = ""
    region: str = ""
    addressing: Literal["auto", "path", "virtual"] = "auto"
    connect_timeout_ms: int = 5_000
    request_timeout_ms: int = 20_000
    retries: int = 3
    retry_timeout_ms: int = 15_000


@dataclass(frozen=True, slots=True)
class ReportConfig:
    """How much a report looks at."""

    rows_max: int = 1_000_000
    members_shown: int = 20


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """What is counted by group."""

    groups_max: int = 1_000


@dataclass(frozen=True, slots=True)
class TelemetryConfig:
    """What is sent to an OpenTelemetry collector, and where it is."""

    send: tuple[Literal["traces", "metrics"], ...] = ()
    endpoint: str = ""
    headers_file: str = ""
    members_max: int = 100


@dataclass(frozen=True, slots=True)
class TopicsConfig:
    """Where topic metadata comes from, and how it is watched."""

    source: str = ""
    poll_ms: int = 5_000
    kafka: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WatchConfig:
    """How the groups of a Kafka cluster are followed."""

    topic: str = "__consumer_offsets"
    offsets_ms: int = 10_000
    lag_ms: int = 30_000
    poll_ms: int = 5_000
    session_ms: int = 45_000
    kafka: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """How `muster node` reaches the brokers and the controllers of a Kafka cluster."""

    kafka: dict[str, str] = field(default_factory=dict)
    controllers: str = ""
    controllers_kafka: dict[str, str] = field(default_factory=dict)
    super_users: tuple[str, ...] = ()
    allow_everyone_if_no_acl_found: bool = False
    groups: dict[str, dict[str, str | int | float | bool]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WeightsConfig:
    """Where weights and constraints of groups come from, and when they move partitions."""

    source: str = ""
    poll_ms: int = 30_000
    half_life_ms: int = 300_000
    interval_ms: int = 300_000
    improvement: str = "5%"
    measure: Literal["lag", "rate", "byte_rate"] = "lag"
    kafka: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlansConfig:
    """How plans are made and kept."""

    valid_ms: int = 86_400_000
    poll_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """How clients on the wire reach the coordinator, and what each may use up."""

    listen: str = "127.0.0.1:9092"
    advertised: str = ""
    node_id: int = 1
    cluster_id: str = "muster"
    tls_certificate: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    sasl_mechanisms: tuple[str, ...] = ()
    sasl_users: str = ""
    scram_iterations: int = 8_192
    acls: str = ""
    reread_ms: int = 2_000
    audit_ms: int = 10_000
    insecure: bool = False
    http_listen: str = ""
    http_users: str = ""
    http_tls: bool = False
    connections_max: int = 10_000
    connections_per_address_max: int = 0
    handshake_ms: int = 5_000
    in_flight_max: int = 64
    classic_protocol: bool = True
    elements_max: int = 0
    request_bytes_max: int = 0
    buffer_bytes_max: int = 1 << 28
    request_ms: int = 30_000
    idle_ms: int = 600_000
    log_level: LogLevel = "info"
    log_format: LogFormat = "text"


@dataclass(frozen=True, slots=True)
class OAuthConfig:
    """Whose tokens let clients in, with SASL/OAUTHBEARER."""

    jwks: str = ""
    issuer: str = ""
    audience: str = ""
    scopes: tuple[str, ...] = ()
    principal: str = "sub"
    clock_skew_ms: int = 30_000
    refresh_ms: int = 3_600_000


@dataclass(frozen=True, slots=True)
class NodesConfig:
    """How the nodes of a store of shards reach each other, where they serve with TLS or logins."""

    kafka: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """How a gateway reaches the Kafka cluster behind it, and where clients log in."""

    login: Literal["here", "kafka"] = "here"
    first_broker_id: int = 0
    kafka: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QuotasConfig:
    """How much clients may ask and keep; 0 means unlimited. By name: of a principal or client id.

    Connections are counted by address.
    """

    requests_per_s_max: int = 0
    requests_per_s: dict[str, int] = field(default_factory=dict)
    bytes_per_s_max: int = 0
    bytes_per_s: dict[str, int] = field(default_factory=dict)
    connections_per_s_max: int = 0
    connections_per_s: dict[str, int] = field(default_factory=dict)
    groups_max: int = 0
    parked_requests_max: int = 10_000
    classic_bytes_max: int = 1 << 28


@dataclass(frozen=True, slots=True)
class PushConfig:
    """Workers that listen: this coordinator connects to them, and is a member for each."""

    workers: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    token_file: str = ""
    tls_ca: str = ""
    session_timeout_ms: int = 9_000
    connect_ms: int = 2_000
    retry_ms: int = 1_000
    answer_bytes_max: int = 0


@dataclass(frozen=True, slots=True)
class WebConfig:
    """The pages for browsers."""

    listen: str = ""
    tls: bool = False
    connections_max: int = 1_000


@dataclass(frozen=True, slots=True)
class Config:
    """All settings."""

    plan: PlanConfig = field(default_factory=PlanConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    cost: CostConfig = field(default_factory=CostConfig)
    report: ReportConfig = field(default_factory=ReportConfig)
    log: LogConfig = field(default_factory=LogConfig)
    lease: LeaseConfig = field(default_factory=LeaseConfig)
    store: StoreConfig = field(default_factory=StoreConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    topics: TopicsConfig = field(default_factory=TopicsConfig)
    watch: WatchConfig = field(default_factory=WatchConfig)
    node: NodeConfig = field(default_factory=NodeConfig)
    weights: WeightsConfig = field(default_factory=WeightsConfig)
    plans: PlansConfig = field(default_factory=PlansConfig)
    server: ServerConfig = field(default_factory=ServerConfig)
    oauth: OAuthConfig = field(default_factory=OAuthConfig)
    nodes: NodesConfig = field(default_factory=NodesConfig)
    gateway: GatewayConfig = field(default_factory=GatewayConfig)
    quotas: QuotasConfig = field(default_factory=QuotasConfig)
    push: PushConfig = field(default_factory=PushConfig)
    web: WebConfig = field(default_factory=WebConfig)
    kafka: KafkaConfig = field(default_factory=KafkaConfig)


def parse(text: str, where: str) -> Config:
    """Read settings from TOML; what is left out has its default.

    Parameters
    ----------
    text
        TOML, as in conf/muster.toml.
    where
        What an error calls it: the path of its file.

    Returns
    -------
    Config
        All settings.

    Raises
    ------
    ConfigError
        Not TOML, an unknown name, a value of another type or outside its bounds.
    """
    try:
        tree: dict[str, Any] = msgspec.toml.decode(text)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{where}: not TOML: {error}") from None
    kafka = tree.pop("kafka", {})
    _refuse_unknown(tree, where)
    try:
        config = msgspec.convert(tree, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from None
    for section, settings in msgspec.to_builtins(config).items():
        for name, value in settings.items():
            number = isinstance(value, int) and section != "kafka" and name != "linger_ms"
            named = isinstance(value, dict) and section == "quotas"
            least = 1 if name in INTERVALS | TIMEOUTS else 0
            if (number and value < least) or (named and min(value.values(), default=0) < 0):
                raise ConfigError(f"{where}: {section}.{name} is {value}: give {least} or more")
    try:
        folder_mode(config.log)
        _refuse_improvement(config.weights.improvement)
        _refuse_place(config.store)
        _refuse_collector(config.telemetry)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    try:
        config = replace(config, kafka=kafka_config(kafka))
    except ConfigError as error:
        raise ConfigError(f"{where}: [kafka] {error}") from None
    for name, groups_own in config.node.groups.items():
        if not name:
            raise ConfigError(
                f"{where}: node.groups has settings of a group without a name: give it"
            )
        try:
            own_group_settings(config.kafka, groups_own)
        except ConfigError as error:
            raise ConfigError(f"{where}: node.groups.{name}: {error}") from None
    return config


def folder_mode(config: LogConfig) -> int:
    """Return the mode of a new store's folders; its files have the same, but execute nothing.

    Raises
    ------
    ConfigError
        A store may not have this mode.
    """
    if not isinstance(config.folder_mode, str) or config.folder_mode not in FOLDER_MODES:
        known = ", ".join(f'"{mode}" ({who})' for mode, who in FOLDER_MODES.items())
        raise ConfigError(f"log.folder_mode is {config.folder_mode!r}: give {known}")
    return int(config.folder_mode, 8)


def _refuse_improvement(text: str) -> None:
    try:
        parse_share(text, "weights.improvement")
    except SpecError as error:
        raise ConfigError(str(error)) from None


def _refuse_place(store: StoreConfig) -> None:
    """Refuse an invalid endpoint or region; what may be a secret is not repeated."""
    if store.endpoint and not is_endpoint(store.endpoint):
        raise ConfigError(
            "store.endpoint is not a plain URL: give http://HOST:PORT or https://HOST:PORT, "
            "without a login and a query; credentials are given by the environment"
        )
    if not REGION.fullmatch(store.region):
        raise ConfigError(
            f"store.region is {store.region!r}: give a name such as eu-central-1, or leave it out "
            "to take AWS_REGION"
        )


def _refuse_collector(telemetry: TelemetryConfig) -> None:
    """Refuse an invalid endpoint, whose value may be a secret, and traces that are too large."""
    if telemetry.members_max > MEMBERS_SHOWN_MAX:
        raise ConfigError(
            f"telemetry.members_max is {telemetry.members_max}: give {MEMBERS_SHOWN_MAX} or less"
        )
    if telemetry.endpoint and not is_endpoint(telemetry.endpoint):
        raise ConfigError(
            "telemetry.endpoint is not a plain URL: give http://HOST:PORT or https://HOST:PORT, "
            "without a login and a query; a login is a header (telemetry.headers_file)"
        )


def is_endpoint(text: str) -> bool:
    """Whether a text is the URL of a server, without a login and a query."""
    try:
        found = urlsplit(text)
        plain = not set(text) & set("@?# ") and found.port != 0
    except ValueError:
        return False
    return found.scheme in {"http", "https"} and bool(found.hostname) and plain


def _refuse_unknown(tree: dict[str, Any], where: str) -> None:
    known = msgspec.to_builtins(Config()) | {"kafka": {}}
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
