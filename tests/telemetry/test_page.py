"""The timeline that the guide shows is that of the rebalance that it tells of."""

from __future__ import annotations

import re

from coordinator.config.settings import parse
from coordinator.telemetry import telemetry
from tests.conftest import ROOT
from tests.support.stories import Story
from tests.telemetry.test_rebalance_follower import Followed

PAGE = (ROOT / "docs/guide/telemetry.md").read_text()


def draw(trace):
    begin = trace.root.begin_ms

    def seconds(*times):
        return " … ".join(f"{(ms - begin) / 1000:.1f} s" for ms in times)

    of = trace.root.attributes
    says = f"{of['muster.reason']}; waited for {of['muster.waited_for']}, {of['muster.waited_ms'] / 1000} s"
    rows = [("rebalance", seconds(begin, trace.root.end_ms), says)]
    for part in trace.parts:
        if part.name == "target":
            says = f"epoch {part.attributes['muster.group.epoch']}, {part.attributes['muster.assignor']}"
        else:
            says = part.attributes["muster.member.id"]
        rows.append((f"  {part.name}", seconds(part.begin_ms, part.end_ms), says))
        rows += [("", seconds(moment.at_ms), moment.name) for moment in part.moments]
    return "".join(f"{name:11}{times:16}{says}\n" for name, times, says in rows)


def test_the_guide_shows_the_timeline():
    story = Story("shipping").topics(parcels=4)
    story.at(-1).join("s1", "parcels").hold_on("s1").at(0).join("s2", "parcels").at(2)
    (shown,) = re.findall(r"```text\n(rebalance.*?)```", PAGE, re.DOTALL)
    assert draw(Followed().play(story.batches).traces[-1]) == shown


def test_the_settings_of_the_guide_are_settings():
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    found = parse(block, "telemetry.md").telemetry
    assert (found.send, found.endpoint) == (("traces", "metrics"), "http://127.0.0.1:4318")


def test_the_guide_has_the_limits():
    assert f"at most {telemetry.SPANS_MAX:,} spans" in PAGE
    assert f"waits up to {2 * telemetry.CLOSE_S:.0f} s for the collector" in PAGE
    assert f"({telemetry.INTERVAL_MS:,})" in PAGE
