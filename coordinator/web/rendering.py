"""Templates to bytes. All that comes from the log is escaped, its invisible characters too."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from coordinator.display.printable import visible
from coordinator.display.times import format_time
from coordinator.history.watched import WAYS
from coordinator.web.paging import link

STATIC = files("coordinator.web") / "static"
KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
TIME = Markup('<time datetime="{}">{} UTC</time>')
FIXED = Markup("<span data-fixed>{}</span>")
ID = Markup('<bdi class="id">{}</bdi>')
WEIGHT_MAX = 18
DASH = "–"  # noqa: RUF001 - typography


class Asset:
    """A file that pages load, with the digest of its content in its address."""

    def __init__(self, name: str) -> None:
        self.body = (STATIC / name).read_bytes()
        self.kind = KINDS[name[name.rindex(".") :]] + "; charset=utf-8"
        self.digest = hashlib.sha256(self.body).hexdigest()
        self.path = f"/static/{self.digest[:16]}/{name}"


ASSETS = {name: Asset(name) for name in ("app.css", "app.js", "htmx-2.0.11.min.js", "icon.svg")}
"""By name; no other file of the folder is served."""
ASSETS_BY_PATH = {asset.path: asset for asset in ASSETS.values()}


def show(value: object) -> object:
    """Escape invisible characters of a text; None is a dash."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, str):
        return visible(value)
    return DASH if value is None else value


def show_count(value: float | None) -> str:
    """Return a number with commas; None is a dash."""
    return DASH if value is None else f"{value:,}"


def show_weight(value: float | None) -> str:
    """Return a weight with commas, and three digits after the point at most; None is a dash."""
    if value is None:
        return DASH
    text = f"{value:,.3f}".rstrip("0").rstrip(".")
    return text if len(text) < WEIGHT_MAX else f"{value:.6g}"


def show_time(at: int | datetime | None) -> Markup:
    """Return a time, ms or as views have it, as an element that the page says the age of."""
    if at is None:
        return escape(DASH)
    time = at if isinstance(at, datetime) else datetime.fromtimestamp(at / 1000, UTC)
    full = format_time(int(time.timestamp() * 1000))
    plain = time.strftime("%Y-%m-%d %H:%M:%S")
    return TIME.format(full, plain)


def show_moment(at: int | datetime | None) -> Markup:
    """Return a time as an element that stays as it is: where times are compared."""
    return FIXED.format(show_time(at))


def show_id(value: str | None) -> Markup:
    """Return an id that a client chose: isolated, so that its direction turns nothing else."""
    if not value:
        return escape(DASH)
    return ID.format(visible(value) if value.strip() else f'"{visible(value)}"')


def _make_environment() -> Environment:
    made = Environment(
        loader=PackageLoader("coordinator.web"),
        autoescape=True,
        finalize=show,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "count": show_count,
        "weight": show_weight,
        "time": show_time,
        "moment": show_moment,
        "id": show_id,
        "way": WAYS.get,
    }
    made.globals |= {
        "link": link,
        "asset": {name: asset.path for name, asset in ASSETS.items()},
    }
    return made


_ENVIRONMENT = _make_environment()


def render(template: str, **values: Any) -> bytes:  # noqa: ANN401 - a template shows anything
    """Return a template with values."""
    return _ENVIRONMENT.get_template(template).render(values).encode("utf-8", "replace")


def compile_templates() -> None:
    """Compile all templates, each of which is compiled once."""
    for name in _ENVIRONMENT.list_templates():
        _ENVIRONMENT.get_template(name)
