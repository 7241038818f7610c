"""Every file here is played, and says what happened word for word; `--rewrite` rewrites it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.coordinator_shell import Shell
from tests.support.fingerprint import fingerprint
from tests.support.traces.text_trace import TextTrace

FILES = sorted(Path(__file__).parent.glob("*.txt"))
RULE = "----"


def played(text):
    """Return a file's text with what each of its commands answers now."""
    player, lines, old = TextTrace(), [], False
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
        remedy = f"pytest {path.parent.name}/… --rewrite rewrites it: read the difference then"
        assert now == text, remedy


def test_a_failure_tells_the_last_events_as_commands_that_can_be_played():
    """Played again, they come to the same records."""
    shell = Shell(clicks=4)
    shell.join("m1", "clicks")
    shell.advance(2_000)
    shell.join("m2", "clicks", instance_id="two")
    shell.beat("m1", 2, {"clicks": [0, 1]})
    shell.reload()
    shell.catalog.set("clicks", 6, "made-anew")
    shell.processor.see_topics()
    shell.beat("m1", 3, {})
    shell.advance(45_000)
    with pytest.raises(AssertionError) as failure, shell.history.printed_on_failure():
        raise AssertionError("an invariant")
    (note,) = failure.value.__notes__
    player = TextTrace()
    for command in note.split("\n\n")[1].splitlines():
        if not command.startswith("#"):
            player.play(command)
    assert fingerprint(player.state) == fingerprint(shell.processor.state)
