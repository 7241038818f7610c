"""Sphinx's settings: `make docs` builds the site from these pages and from the code.

Nothing here needs a network. A marker <!-- table: NAME --> in a page becomes what `tables.py` makes
of the code under that name, so a table of the reference cannot be out of date.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from tables import TABLES  # noqa: E402 - found by the line above

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "Muster"
author = "The authors of Muster"
release = tomllib.loads((HERE.parent / "pyproject.toml").read_text("utf-8"))["project"]["version"]
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
exclude_patterns = ["_build"]
nitpicky = True
nitpick_ignore_regex = [
    # Types in signatures: of other libraries, and of ours that have no page of their own.
    (r"py:(class|data|exc|obj)", r".*"),
]
default_role = "code"
highlight_language = "none"
smartquotes = False  # they would turn the two hyphens of an option into a dash

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4

autodoc_class_signature = "separated"
autodoc_default_options = {"exclude-members": "__init__, __new__"}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "pydata_sphinx_theme"
html_title = f"Muster {release}"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": [],
    "footer_end": [],
}

TABLE = re.compile(r"^<!-- table: (\w+) -->$", re.MULTILINE)
MERMAID = re.compile(r"^```mermaid\nstateDiagram-v2\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGE = re.compile(r"\bdocs/([\w/]+)\.md(?:#([\w-]+))?")


def fill_tables(_app: Sphinx, _page: str, source: list[str]) -> None:
    """Put tables made from the code where a page asks for them; a diagram becomes a table."""
    text = TABLE.sub(lambda found: TABLES[found[1]](), source[0])
    source[0] = MERMAID.sub(lambda found: _list_moves(found[1]), text)


def link_pages(
    _app: Sphinx, _what: str, _name: str, _object: object, _options: object, lines: list[str]
) -> None:
    """Make a link of a page that a docstring cites."""
    lines[:] = [PAGE.sub(_link_page, line) for line in lines]


def _link_page(cited: re.Match[str]) -> str:
    """Return a link with a page's title, and the section that is meant."""
    title = (HERE / f"{cited[1]}.md").read_text("utf-8").partition("\n")[0].lstrip("# ")
    section = f" ({cited[2].replace('-', ' ')})" if cited[2] else ""
    return f":doc:`{title}{section} </{cited[1]}>`"


def _list_moves(arrows: str) -> str:
    """Return a state diagram, which takes a script from elsewhere to draw, as a table."""
    moves: dict[str, list[str]] = {}
    for here, there in re.findall(r"(\w+) --> (\w+)", arrows):
        moves.setdefault(here, []).append(there)
    rows = [f"| {here} | {', '.join(there)} |" for here, there in moves.items()]
    return "\n".join(["| from | may go to |", "|---|---|", *rows])


def setup(app: Sphinx) -> None:
    """Tell Sphinx of the two."""
    app.connect("source-read", fill_tables)
    app.connect("autodoc-process-docstring", link_pages)
