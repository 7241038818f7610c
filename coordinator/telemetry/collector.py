"""How the collector is reached: the settings [telemetry], and OpenTelemetry's own variables."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from coordinator.config import Config, ConfigError
from coordinator.config.safe_urls import is_safe_url
from coordinator.extras import require

PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
PROTOCOLS = {"", "http/protobuf"}
DISABLED = "OTEL_SDK_DISABLED"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@dataclass(frozen=True, slots=True)
class Collector:
    """Where to send what.

    Attributes
    ----------
    send
        "traces" and "metrics", or one of them.
    endpoint
        Its URL, to which the paths are added; "" takes OpenTelemetry's variables.
    headers
        With each request; they may hold a secret.
    """

    send: tuple[str, ...]
    endpoint: str
    headers: dict[str, str]

    def url_of(self, what: str) -> str | None:
        """Return the URL for traces or metrics; None takes OpenTelemetry's variables."""
        return f"{self.endpoint.rstrip('/')}/v1/{what}" if self.endpoint else None


def find_collector(config: Config) -> Collector | None:
    """Return how to reach the collector; None where nothing is sent.

    Raises
    ------
    ConfigError
        The extra is not installed, the protocol is another one, or the headers cannot be read, or
        would be sent where others can read them.
    """
    wanted = config.telemetry
    if not wanted.send or os.environ.get(DISABLED, "").strip().lower() == "true":
        return None
    require("telemetry.send", "otel")
    for name in (
        PROTOCOL,
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
        "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
    ):
        found = os.environ.get(name, "").strip()
        if found not in PROTOCOLS:
            raise ConfigError(
                f"{name} is {found}: Muster sends http/protobuf, so name that or unset it"
            )
    headers = _read_headers(wanted.headers_file) if wanted.headers_file else {}
    for what in wanted.send:
        url = wanted.endpoint or _endpoint_of(what)
        is_open = url.strip().lower().startswith("http:") and not is_safe_url(url)
        if headers and is_open and not config.server.insecure:
            raise ConfigError(
                "telemetry.headers_file would be sent over plain http to "
                f"{_host_of(url)}: give an https endpoint, or set server.insecure"
            )
    return Collector(wanted.send, wanted.endpoint, headers)


def _endpoint_of(what: str) -> str:
    """Return where OpenTelemetry's variables send traces or metrics; "" for this machine."""
    own = f"OTEL_EXPORTER_OTLP_{what.upper()}_ENDPOINT"
    return os.environ.get(own) or os.environ.get(ENDPOINT, "")


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or "no host"
    except ValueError:
        return "no host"


def _read_headers(path: str) -> dict[str, str]:
    """Return the headers in a file, one a line; an error names no value."""
    try:
        lines = Path(path).read_text("ascii").splitlines()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not ASCII"
        raise ConfigError(f"telemetry.headers_file {path} cannot be read: {reason}") from None
    headers = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, value = line.partition(":")
        if (
            not colon
            or not name.strip().replace("-", "").replace("_", "").isalnum()
            or not value.strip().isprintable()
        ):
            raise ConfigError(
                f"telemetry.headers_file {path} has no header in line {number}: write name: value"
            )
        headers[name.strip().lower()] = value.strip()
    if not headers:
        raise ConfigError(f"telemetry.headers_file {path} has no header: write name: value")
    return headers
