"""What a shared source is given: checked, and made into Spark's options."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from coordinator.member.client_settings import PROTOCOLS, ClientSettings
from spark_jobs.streams.batch_bounds import Weights
from spark_jobs.streams.kafka_topics import kafka_settings

STARTING = ("earliest", "latest")
OWN_OPTIONS = {
    "assign": "the member's group says what is read",
    "subscribe": "the member has the subscription: give it topics",
    "subscribepattern": "the member has the subscription: give it pattern",
    "startingoffsets": "the group's offsets say it; for others give starting",
    "startingoffsetsbytimestamp": "reset the group's offsets with kafka-consumer-groups",
    "startingtimestamp": "reset the group's offsets with kafka-consumer-groups",
    "endingoffsets": "give max_records or batch_s",
    "endingoffsetsbytimestamp": "give max_records or batch_s",
    "endingtimestamp": "give max_records or batch_s",
    "maxoffsetspertrigger": "give max_records",
    "kafka.bootstrap.servers": "give kafka",
}
"""Options of Spark's source that are not to be given, and what to give instead."""
MODULES = {"PLAIN": "plain.PlainLoginModule"}
SCRAM_MODULE = "scram.ScramLoginModule"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a shared source.

    Attributes
    ----------
    settings
        How this process reaches the cluster.
    spark
        Options of Spark's Kafka source.
    """

    settings: ClientSettings
    spark: dict[str, str]
    starting: str
    max_records: float | None
    weights: Weights
    batch_s: float | None
    interval_s: float

    @property
    def fails_on_loss(self) -> bool:
        """Whether records that were deleted before they were read are an error."""
        return self._option("failondataloss", "true") != "false"

    @property
    def committed_only(self) -> bool:
        """Whether records of open transactions are not read."""
        return self._option("kafka.isolation.level", "") == "read_committed"

    def _option(self, name: str, otherwise: str) -> str:
        found = [value for key, value in self.spark.items() if key.lower() == name]
        return found[-1].lower() if found else otherwise


def read_options(
    kafka: str | Sequence[str],
    *,
    starting: str,
    max_records: int | None,
    weights: Weights | None,
    batch_s: float | None,
    interval_s: float,
    options: Mapping[str, Any] | None,
    tls: ssl.SSLContext | None,
    login: tuple[str, str, str] | None,
) -> SourceOptions:
    """Return options; ValueError names the invalid value."""
    settings = kafka_settings(kafka, tls, login)
    if starting not in STARTING:
        raise ValueError(f"starting is {starting!r}: give 'earliest' or 'latest'")
    if interval_s != 0:
        _check_positive(interval_s=interval_s)
    _check_positive(max_records=max_records, batch_s=batch_s)
    for place, weight in (weights or {}).items():
        if not (_is_number(weight) and weight >= 0):
            raise ValueError(f"the weight of {place} is {weight!r}: give a number from 0")
    given = dict(options or {})
    for name in given:
        if not isinstance(name, str):
            raise ValueError(f"option {name!r} is not text: give names of Spark's options")  # noqa: TRY004
        if name.lower() in OWN_OPTIONS:
            raise ValueError(f"option {name!r} is not to be given: {OWN_OPTIONS[name.lower()]}")
    servers = kafka if isinstance(kafka, str) else ",".join(kafka)
    spark = {"kafka.bootstrap.servers": servers, **_access(tls, login)}
    spark |= {name: _text(value) for name, value in given.items()}
    return SourceOptions(
        settings, spark, starting, max_records, dict(weights or {}), batch_s, interval_s
    )


def _access(tls: ssl.SSLContext | None, login: tuple[str, str, str] | None) -> dict[str, str]:
    """Return the options by which executors reach the cluster as this process does."""
    if tls is None and login is None:
        return {}
    wanted = tls is not None, login is not None
    (protocol,) = [name for name, needs in PROTOCOLS.items() if needs == wanted]
    found = {"kafka.security.protocol": protocol}
    if login is not None:
        mechanism, user, password = login
        module = MODULES.get(mechanism, SCRAM_MODULE)
        found["kafka.sasl.mechanism"] = mechanism
        found["kafka.sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module} required "
            f"username={_quoted(user)} password={_quoted(password)};"
        )
    return found


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _check_positive(**values: float | None) -> None:
    for name, value in values.items():
        if value is not None and not (_is_number(value) and value > 0):
            raise ValueError(f"{name} is {value!r}: give a number above 0")
