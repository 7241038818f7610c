"""How this process reaches object stores: settings, time-outs, and what the environment says."""

from __future__ import annotations

import os

from coordinator.config import ConfigError, StoreConfig, is_endpoint

LOOK_MS = 5_000
"""How long an answer is waited for at the first look: at a table's log, which is small."""
_ENDPOINTS = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AZURE_STORAGE_ENDPOINT")
_IN_HEADERS = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID",
)  # fmt: skip
"""What goes into the headers of requests, or into their addresses."""
_MAKERS = {"s": "AWS_", "a": "AZURE_"}
"""How the names of variables begin, by how the schemes of stores do."""


class _Settings:
    """How this process reaches object stores."""

    used = StoreConfig()


def use_settings(store: StoreConfig) -> None:
    """Reach object stores by these settings from here on, in the whole process."""
    _Settings.used = store


def used_settings() -> StoreConfig:
    """Return the settings by which this process reaches object stores."""
    return _Settings.used


def reading_options(scheme: str, *, look: bool = False) -> dict[str, str]:
    """Return delta-rs's options beside the environment; by default it tries for minutes."""
    check_environment(scheme)
    used = used_settings()
    timeout_ms = min(used.request_timeout_ms, LOOK_MS) if look else used.request_timeout_ms
    options = {
        "connect_timeout": f"{used.connect_timeout_ms}ms",
        "timeout": f"{timeout_ms}ms",
        "max_retries": str(used.retries),
        "retry_timeout": f"{used.retry_timeout_ms}ms",
    }
    return options | place_options(scheme)


def check_environment(scheme: str) -> None:
    """Check what a client takes from the environment; one that is made of odd values panics.

    Raises
    ------
    ConfigError
        A variable has an impossible value, which is not shown: it may be a secret.
    """
    maker = _MAKERS.get(scheme[:1].lower(), "none")
    for name in (*_IN_HEADERS, *_ENDPOINTS):
        value = os.environ.get(name)
        if value is None or not name.startswith(maker):
            continue
        if not value.isprintable():
            raise ConfigError(
                f"{name} has a line break or another control character: set it without"
            )
        if name in _ENDPOINTS and not used_settings().endpoint and not is_endpoint(value):
            raise ConfigError(
                f"{name} is not a plain URL: give http://HOST:PORT or https://HOST:PORT, or unset "
                "it"
            )


def place_options(scheme: str) -> dict[str, str]:
    """Return where the settings say that S3 is, in the words of obstore and delta-rs."""
    used, options = used_settings(), {}
    if scheme not in {"s3", "s3a"}:
        return {}
    if used.endpoint:
        options["aws_endpoint"] = used.endpoint
        options["aws_allow_http"] = str(used.endpoint.startswith("http:")).lower()
    if used.region:
        options["aws_region"] = used.region
    if used.addressing != "auto":
        options["aws_virtual_hosted_style_request"] = str(used.addressing == "virtual").lower()
    return options
