"""A plot can be read: no label runs into another or out of its frame."""

from __future__ import annotations

import itertools
import json

import pytest
from matplotlib.colors import to_hex

from assignors import GroupSpec, get_assignor, quality
from coordinator.cli import report
from spark_jobs.cli import assign


def report_of(members, topics, owned=None):
    """What is reported of members that all subscribe to all topics."""
    owned = owned or {}
    spec = {
        "topics": topics,
        "members": {
            name: {"subscribed": list(topics), "owned": owned.get(name, {})} for name in members
        },
    }
    group = GroupSpec.from_dict(spec)
    return quality.report(group, get_assignor("uniform").assign(group))


def many_partitions():
    names = [f"worker-{number:03}" for number in range(100)]
    taken = {names[0]: {"clicks": list(range(3_000))}}
    return report_of(names, {"clicks": 12_345_678}, taken)


FIGURES = {
    "few": lambda: report_of(["ann", "bob", "cid"], {"clicks": 6, "orders": 6}),
    "one": lambda: report_of(["ann"], {"clicks": 1}),
    "long ids": lambda: report_of(
        [f"consumer-billing-{number}-9f86d081884c7d659a2feaa0c55ad015" for number in range(60)],
        {"clicks": 100_000},
    ),
    "odd ids": lambda: report_of(["$a$", "b\nb", "_c_{^", "\x1b[31md"], {"clicks": 9}),
    "many": many_partitions,
    "none": lambda: report_of([f"m{number}" for number in range(70)], {"clicks": 0}),
}


def labels_of(axes):
    """The labels of each axis that are within it: others are not drawn."""
    for axis, ends in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        ticks = axis.get_major_ticks()
        yield [tick.label1 for tick in ticks if min(ends) <= tick.get_loc() <= max(ends)]


def boxes(figure, texts):
    renderer = figure.canvas.get_renderer()
    return [text.get_window_extent(renderer) for text in texts if text.get_text()]


@pytest.fixture(params=FIGURES)
def figure(request):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    drawn = report.draw(FIGURES[request.param](), "uniform, group billing")
    FigureCanvasAgg(drawn).draw()
    return drawn


def test_tick_labels_do_not_touch(figure):
    for axes in figure.axes:
        drawn = [boxes(figure, labels) for labels in labels_of(axes)]
        assert any(drawn)
        for labels in drawn:
            for one, other in itertools.pairwise(labels):
                assert not one.overlaps(other)


def test_numbers_are_whole_and_in_thousands(figure):
    loads, reasons = figure.axes
    for axis in (loads.yaxis, reasons.xaxis):
        assert axis.get_offset_text().get_text() == ""  # 1e7
        for label in axis.get_ticklabels():
            assert label.get_text() == f"{int(label.get_text().replace(',', '')):,}"


def test_labels_stay_within_the_figure(figure):
    for axes in figure.axes:
        frame = axes.get_window_extent()
        for box in boxes(figure, axes.texts):  # the labels of bars
            assert frame.contains(box.x0, box.y0)
            assert frame.contains(box.x1, box.y1)
        for box in boxes(figure, [*itertools.chain(*labels_of(axes)), axes.title]):
            assert box.x0 >= 0
            assert box.y0 >= 0
            assert box.x1 <= figure.bbox.x1


def test_unowned_partitions_are_not_drawn_as_moves():
    found = report_of(["ann", "bob"], {"clicks": 6}, {"ann": {"clicks": [0, 1, 2, 3]}})
    axes = report.draw(found, "uniform").axes[1]
    names = [" ".join(label.get_text().split()) for label in axes.get_yticklabels()]
    colours = dict(zip(names, (to_hex(bar.get_facecolor()) for bar in axes.patches), strict=True))
    assert list(colours) == ["stayed", "owner above its share", "nobody owned it"]
    assert len(set(colours.values())) == 3


def test_the_title_is_the_users(muster_here, tmp_path, monkeypatch):
    spec = {"topics": {"clicks": 6}, "members": {"ann": {"subscribed": ["clicks"]}}}
    titles = []
    monkeypatch.setattr(assign, "plot", lambda _, title, __: titles.append(title))
    plot = ["assign", "--plot", tmp_path / "x.png"]
    muster_here(*plot, "--title", "Monday $5", stdin=json.dumps(spec))
    muster_here(*plot, stdin=json.dumps(spec))
    assert titles == ["Monday $5", "uniform"]
    done = muster_here("assign", "--title", "Monday", stdin=json.dumps(spec))
    assert done.returncode == 2
    assert done.stderr == b"muster: --title 'Monday' requires --plot: give the plot too\n"
