"""What the project cites is in the clone: every page, and every heading of it that is named."""

from __future__ import annotations

import re
import subprocess
from functools import cache

import pytest

from tests.conftest import ROOT

ENDINGS = (".py", ".md", ".toml", ".sql", ".conf", ".sh", ".properties")
LISTED = subprocess.run(
    ["git", "ls-files", "-co", "--exclude-standard"],
    cwd=ROOT, capture_output=True, text=True, check=True,
).stdout.split()  # fmt: skip
FILES = [
    name
    for name in LISTED
    if name.endswith(ENDINGS)
    and not name.startswith("tests/golden/")
    and name != "tests/docs/test_citations.py"
    and (ROOT / name).exists()
]
MENTION = re.compile(r"\bdocs/([\w/]+\.md)(?:#([\w-]+))?((?:(?:,| and) #[\w-]+)*)")
LINK = re.compile(r"\]\(([^)#:\s]*\.md|)#([\w-]+)\)")
ELSEWHERE = re.compile(r"(?:design|spec|specification) §|(?<![\w/(\[])(?:algorithm|design)\.md")
"""A page that is named without its folder, or by a section number, is not one of ours."""


def room_of(name):
    """Return the folder of a file, of those that are at the top or one below."""
    return "/".join(name.split("/")[:-1][:2])


@cache
def anchors(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-"))
    return found


@pytest.mark.parametrize("room", sorted({room_of(name) for name in FILES}))
def test_cited_pages_and_their_headings_exist(room):
    missing, elsewhere = [], []
    for name in FILES:
        if room_of(name) == room:
            text = (ROOT / name).read_text(encoding="utf-8")
            cited = cited_in(name, text)
            missing += [
                f"{name}: {page}#{anchor}"
                for page, anchor in cited
                if not page.exists() or (anchor and anchor not in anchors(page))
            ]
            elsewhere += [f"{name}: {found}" for found in ELSEWHERE.findall(text)]
    assert (missing, elsewhere) == ([], [])


def cited_in(name, text):
    """Return the pages that a file names, each with a heading or with ""."""
    cited = []
    for path, anchor, more in MENTION.findall(text):
        wanted = [anchor, *re.findall(r"#([\w-]+)", more)] if anchor else []
        cited += [(ROOT / "docs" / path, one) for one in wanted or [""]]
    if name.endswith(".md"):
        here = ROOT / name
        cited += [(here.parent / path if path else here, one) for path, one in LINK.findall(text)]
    return cited


def test_an_anchor_is_made_as_github_does():
    page = ROOT / "docs/design/assignors.md"
    assert {"in-steps-max_moves", "what-is-proved-the-verdict"} <= anchors(page)
