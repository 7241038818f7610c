"""Weighted groups against every assignment there is: rules, budgets, tolerance, idle partitions."""

from __future__ import annotations

import random
import statistics

import numpy as np
import pytest

from assignors import GroupSpec, SpecError, get_assignor
from tests.assignors.exact_judge import EXACT, Judge, draw_options, draw_spec, share
from tests.support.longer import EVERY

SEEDS = range(4000) if EVERY else range(60)
CHUNK = 40


def assign(spec, options):
    """Return the assignment, and whether it is partial; None where it is refused."""
    try:
        ranges = get_assignor("weighted", **options).assign(GroupSpec.from_dict(spec))
    except SpecError:
        return None
    return ranges.to_dict(), ranges.partial


def owning(spec, assignment):
    members = {m: f | {"owned": assignment[m]} for m, f in spec["members"].items()}
    return spec | {"members": members}


class Case:
    """One group with its options, and all that is judged of it."""

    def __init__(self, seed, **more):
        self.seed, self.spec, self.options = seed, draw_spec(seed), draw_options(seed) | more
        self.judge = Judge.of(self.spec, self.options["rack"])
        self.judged, self.gap = 0, None

    def check(self):
        judge, found = self.judge, assign(self.spec, self.options)
        good = judge.every[judge.holds(judge.every)]
        if not judge.partitions:
            return
        if found is None:
            self.judged += 1
            assert not len(good) or judge.two_labels(hard=True), "refused, and there is one"
            return
        row = judge.rows_of(found[0])
        self.check_rules(row)
        self.check_balance(row, good)
        self.check_idle(row, good)
        self.check_again(found[0])
        self.check_softness(row)
        self.check_budgets(good)

    def check_rules(self, row):
        self.judged += 1
        assert self.judge.holds(row).all(), "a hard rule is broken"

    def check_balance(self, row, good):
        """What is in order stays unless it pays."""
        self.judged += 1
        judge = self.judge
        reached, best = judge.makespan(row)[0], judge.makespan(good).min()
        assert reached >= best - EXACT
        hard_only = all(rule["hard"] for rule in self.spec["constraints"])
        before = judge.before[None]
        whole = bool(judge.holds(before).all())
        if hard_only and not whole and best > 0:
            self.gap = reached / best
        if hard_only and whole and judge.moves(row)[0] and "least_share" not in self.options:
            least = float(share(self.options["improvement"]))
            less = judge.makespan(before)[0] > reached * (1 + least) + EXACT
            nearer = judge.distant(before)[0] - judge.distant(row)[0]
            assert less or nearer > least * judge.weight.sum() + EXACT, "moved for too little"

    def check_idle(self, row, good):
        """What weighs nothing moves by rules alone; new ones go where the fewest are."""
        judge, rules = self.judge, self.spec["constraints"]
        bound = judge.is_tied() or any(rule["kind"] == "colocate" for rule in rules)
        if bound or not all(rule["hard"] for rule in rules):
            return
        self.judged += 1
        for at in judge.idle():
            if judge.before[at] in good[:, at]:
                assert row[0, at] == judge.before[at], f"partition {at} moved for nothing"
        placed = judge.idle()[row[0, judge.idle()] != judge.before[judge.idle()]]
        kept = np.setdiff1d(judge.idle(), placed)
        whose = np.unique(row[0, placed])
        if self.options["rack"] != "prefer" or "racks" not in self.spec:
            rows = good[(good[:, kept] == row[0, kept]).all(axis=1)]
            best = min(judge.crowd(rows, np.unique(rows[0, placed])) for rows in rows[:, None])
            assert judge.crowd(row, whose)[0] <= best + EXACT, "crowded where others have fewer"

    def check_again(self, assignment):
        self.judged += 1
        again = assign(owning(self.spec, assignment), self.options)
        assert again is not None
        assert again[0] == assignment, "assigning it again moved"

    def check_softness(self, row):
        """Soft rules cost no more than the tolerance, and all hold where that costs nothing."""
        judge = self.judge
        if all(rule["hard"] for rule in self.spec["constraints"]):
            return
        self.judged += 1
        hard = [rule for rule in self.spec["constraints"] if rule["hard"]]
        plain = assign(self.spec | {"constraints": hard}, self.options)
        self.compare(row, plain[0], "soft rules cost too much")
        if (
            judge.holds(judge.before[None], soft=True).all()
            and not judge.moves(judge.rows_of(plain[0])).any()
        ):
            assert judge.holds(row, soft=True).all(), "soft rules held, and do no more"

    def compare(self, row, plain, said):
        judge, share_ = self.judge, float(share(self.options["tolerance"]))
        without = judge.makespan(judge.rows_of(plain))[0]
        assert judge.makespan(row)[0] <= without * (1 + share_) + EXACT, said

    def check_budgets(self, good):
        judge = self.judge
        forced = judge.moves(good).min(), judge.moved_weight(good).min()
        hard = [rule for rule in self.spec["constraints"] if rule["hard"]]
        plain = self.spec | {"constraints": hard}
        moved = []
        for most in (None, 4, 2, 1, 0):
            self.judged += 1
            options = self.options | {"max_moves": most}
            found = assign(self.spec, options)
            row = judge.rows_of(found[0])
            moved.append(judge.moves(row)[0])
            assert judge.holds(row).all(), "a hard rule is broken by a budget"
            if most is not None and not judge.is_tied():
                assert moved[-1] <= max(most, forced[0]), f"{moved[-1]} moves of {most}"
            if most is not None:
                self.compare(row, assign(plain, options)[0], f"soft rules cost more: {most}")
        assert moved == sorted(moved, reverse=True), f"a tighter budget moved more: {moved}"
        most = random.Random(self.seed).choice([0, 1, 1.5, 3])
        self.judged += 1
        options = self.options | {"max_moved_weight": most}
        row = judge.rows_of(assign(self.spec, options)[0])
        if not judge.is_tied():
            heaviest = max(most, forced[1]) + EXACT
            assert judge.moved_weight(row)[0] <= heaviest, f"weight moved beyond {most}"
        self.compare(row, assign(plain, options)[0], "soft rules cost more")


@pytest.mark.parametrize("seeds", [SEEDS[at : at + CHUNK] for at in range(0, len(SEEDS), CHUNK)])
def test_every_assignment_of_small_groups(seeds, record_property):
    cases = list(judge_all(seeds))
    judged = sum(case.judged for case in cases)
    record_property("judged", judged)
    assert judged > CHUNK
    assert statistics.mean(case.gap for case in cases if case.gap is not None) < 1.03


def test_every_assignment_of_small_groups_whose_members_have_a_least_share():
    seeds = SEEDS[: len(SEEDS) // (4 if EVERY else 10)]
    for part in ("50%", "100%"):
        assert sum(case.judged for case in judge_all(seeds, least_share=part)) > len(seeds)


def judge_all(seeds, **more):
    for seed in seeds:
        case = Case(seed, **more)
        try:
            case.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}: {case.options} {case.spec}") from error
        yield case
