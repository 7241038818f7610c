"""Errors: Kafka's codes, those of a status, and the texts of other libraries' errors."""

from __future__ import annotations

from coordinator.errors.codes import (
    ConfigError,
    ErrorCode,
    Fenced,
    GroupError,
    IllegalStateError,
    PartitionsRefusedError,
    UnavailableError,
)

__all__ = [
    "ConfigError",
    "ErrorCode",
    "Fenced",
    "GroupError",
    "IllegalStateError",
    "PartitionsRefusedError",
    "UnavailableError",
]
