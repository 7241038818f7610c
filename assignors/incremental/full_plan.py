"""Why a plan is made from nothing."""

from __future__ import annotations

from enum import Enum


class FullPlan(Enum):
    """Why a plan was made from nothing, that is, by looking at all members.

    It reads the group out of its last plan, changes it, assigns it and keeps the new plan.
    docs/design/algorithm.md#when-a-plan-is-made-from-nothing says for each reason why the last plan
    does not have what is needed.
    """

    FIRST = "there is no plan before it"
    ASSIGNOR = "only uniform, sticky and weighted continue from their last plan"
    LOADS = "the group has racks or constraints, or weights that do not decide"
    UNKNOWN = "some weights are not known, and others stand for them"
    WEIGHED = "more than weights and ids of members changed in a group with weights"
    WEIGHTLESS = "no partition weighs anything any longer"
    DRIFT = "the greatest load is further above its bound than a plan leaves it"
    LONG = "ranges of so small a group are kept long, for which all are looked at"
    SUBSCRIPTIONS = "two subscriptions became the same"
    KINDS = "members that share topics own them in very many ways"
    INEXACT = "the plan of classes that share topics is larger than exact_edges"
    MOVES = "more has to move than max_moves, and what goes first is chosen among all"
    CLASSES = "there are very many subscriptions and topics"
    TOPICS = "there are too many partitions, or very many topics have come and gone"
    NAMES = "a member or a topic is looked for among all"
    NOTHING = "there are no members, before or after"
