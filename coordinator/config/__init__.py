"""All settings: Muster's (`settings.py`), and those that have Kafka's names (`kafka.py`)."""

from __future__ import annotations

from coordinator.config.settings import (
    KAFKA,
    Config,
    CostConfig,
    EngineConfig,
    LeaseConfig,
    LogConfig,
    LogLevel,
    MetricsConfig,
    PlanConfig,
    PlansConfig,
    PushConfig,
    QuotasConfig,
    ServerConfig,
    StoreConfig,
    TopicsConfig,
    WatchConfig,
    WebConfig,
    WeightsConfig,
    folder_mode,
    is_endpoint,
    parse,
)
from coordinator.errors import ConfigError

__all__ = [
    "KAFKA",
    "Config",
    "ConfigError",
    "CostConfig",
    "EngineConfig",
    "LeaseConfig",
    "LogConfig",
    "LogLevel",
    "MetricsConfig",
    "PlanConfig",
    "PlansConfig",
    "PushConfig",
    "QuotasConfig",
    "ServerConfig",
    "StoreConfig",
    "TopicsConfig",
    "WatchConfig",
    "WebConfig",
    "WeightsConfig",
    "folder_mode",
    "is_endpoint",
    "parse",
]
