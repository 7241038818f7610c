"""What `pip install muster` leaves out, and the error that says how to install it."""

from __future__ import annotations

from importlib.util import find_spec

from coordinator.errors import ConfigError

EXTRAS = {
    "kafka": ("confluent_kafka",),
    "oauth": ("jwt", "cryptography"),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "plot": ("matplotlib",),
    "spark": ("pyspark",),
    "web": ("starlette", "uvicorn", "jinja2"),
}
"""The modules that an extra installs, as far as Muster imports them by name."""
BROUGHT = {"py4j": "spark", "pandas": "spark"}
"""Modules that come with an extra, beside those that are looked for."""


class MissingExtraError(ConfigError, ImportError):
    """Something needs an extra that is not installed; the message has the command to install it."""


def require(what: str, *extras: str) -> None:
    """Refuse to go on without what extras install.

    Raises
    ------
    MissingExtraError
        A package is missing. The message names all that are missing, and their extras.
    """
    missing = {
        extra: names
        for extra in extras
        if (names := [name for name in EXTRAS[extra] if not _is_there(name)])
    }
    if missing:
        names = [name for found in missing.values() for name in found]
        raise _missing(what, names, ",".join(sorted(missing)))


def _is_there(name: str) -> bool:
    """Whether a module can be imported; of a package that is not there, none can."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def explain(error: ImportError, what: str) -> ImportError:
    """Return what to raise instead of an error of `import`: itself, if it is about no extra."""
    name = (error.name or "").partition(".")[0]
    known = BROUGHT | {one: extra for extra, names in EXTRAS.items() for one in names}
    if isinstance(error, MissingExtraError) or name not in known or find_spec(name) is not None:
        return error
    return _missing(what, [*EXTRAS[known[name]]] if name in BROUGHT else [name], known[name])


def _missing(what: str, names: list[str], extras: str) -> MissingExtraError:
    return MissingExtraError(
        f"{what} needs {' and '.join(names)}, not installed: pip install 'muster[{extras}]'"
    )
