"""Every file here is played, and tells what happened word for word; `--rewrite` writes it anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.trace_player import Player

FILES = sorted(Path(__file__).parent.glob("*.txt"))
RULE = "----"


def played(text):
    """Return a file's text with what each of its commands answers now."""
    player, lines, old = Player(), [], False
    for line in text.splitlines():
        old = (old and line != "") or line == RULE
        if old:
            continue  # what it said when it was written
        if line and lines and lines[-1] and not lines[-1].startswith("#"):
            lines.append("")
        lines.append(line)
        if line and not line.startswith("#"):
            lines += [RULE, *player.play(line)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_trace_tells_what_happens(path, request):
    text = path.read_text(encoding="utf-8")
    now = played(text)
    if request.config.getoption("--rewrite"):
        path.write_text(now, encoding="utf-8")
    else:
        remedy = f"pytest {path.parent.name}/… --rewrite writes it anew: read the difference then"
        assert now == text, remedy
