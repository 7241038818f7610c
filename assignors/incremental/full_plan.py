"""Why a plan is made from nothing."""

from __future__ import annotations

from enum import Enum


class FullPlan(Enum):
    """Why a plan was made from nothing, that is, by looking at all members."""

    FIRST = "there is no plan before it"
    ASSIGNOR = "only uniform and sticky continue from their last plan"
    LOADS = "the group has weights, capacities or constraints"
    LONG = "ranges of so small a group are kept long, for which all are looked at"
    SUBSCRIPTIONS = "what is subscribed to changed, and some subscriptions have a common topic"
    KINDS = "members that share topics own them in very many ways"
    INEXACT = "the plan of classes that share topics is larger than exact_edges"
    MOVES = "more has to move than max_moves, and what goes first is chosen among all"
    CLASSES = "there are very many subscriptions and topics"
    TOPICS = "there are too many partitions, or very many topics have come and gone"
    NAMES = "a member or a topic is looked for among all"
    NOTHING = "there are no members, before or after"
