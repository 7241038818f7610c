"""Settings mean the same to every way to a target: within a step, beside the loop, in a plan."""

from __future__ import annotations

import random

import pytest

from assignors import GroupSpec, get_assignor
from coordinator import Coordinator
from coordinator.config import Config, EngineConfig, PlanConfig
from coordinator.core.targets.assignor_options import AssignorOptions
from tests.support.members import AT_ONCE, join, wait_for

TOPICS = {"a": 5, "b": 7, "c": 3, "d": 6}
WAYS = {"in the step": EngineConfig(), "beside the loop": EngineConfig(step_rows_max=0)}


def subscriptions(seed):
    """Members with what they subscribe to, in the order in which they join."""
    chance = random.Random(seed)
    return {
        f"m{at}": sorted(chance.sample(sorted(TOPICS), chance.randint(1, 4))) for at in range(7)
    }


def targets_of(coordinator):
    (group,) = coordinator.consumer_group_describe("g")
    return {
        member["member_id"]: {
            one["topic_name"]: one["partitions"]
            for one in member["target_assignment"]["topic_partitions"]
        }
        for member in group["members"]
    }


def assigned(members, owned, exact_edges):
    spec = {
        "topics": TOPICS,
        "members": {m: {"subscribed": s, "owned": owned.get(m, {})} for m, s in members.items()},
    }
    return get_assignor("uniform", exact_edges=exact_edges).assign(GroupSpec.from_dict(spec))


def settled(coordinator):
    wait_for(lambda: len(set(coordinator.group_epochs("g")[0])) == 1)
    return targets_of(coordinator)


@pytest.mark.parametrize("way", WAYS)
def test_exact_edges_mean_the_same_in_the_coordinator(way):
    differs = 0
    for seed in range(8):
        config = Config(kafka=AT_ONCE, plan=PlanConfig(exact_edges=0), engine=WAYS[way])
        with Coordinator.open(None, topics=TOPICS, config=config) as coordinator:
            there, owned = {}, {}
            for member, topics in subscriptions(seed).items():
                there[member] = topics
                join(coordinator, member, topics=topics)
                found = settled(coordinator)
                wanted = assigned(there, owned, 0).to_dict()
                assert found == wanted
                differs += wanted != assigned(there, owned, 4_000_000).to_dict()
                owned = found
    assert differs, "groups to which the setting makes no difference show nothing"


def test_options_follow_from_settings():
    settings = {
        "consumer.assignor.imbalance": "5%",
        "consumer.assignor.max.moves": "7",
        "consumer.assignor.tolerance": "2%",
        "consumer.assignor.max.moved.weight": "1.5",
        "consumer.assignor.least.share": "80%",
        "consumer.assignor.defragment": "6",
    }
    config = Config(plan=PlanConfig(exact_edges=9, long_ranges=8))

    def arguments(assignor, **more):
        return AssignorOptions.of_target(assignor, settings | more, config).arguments()

    assert arguments("range") == arguments("anothers") == {}
    assert arguments("uniform") == {"exact_edges": 9, "long_ranges": 8, "defragment": 6}
    of_plan = {"exact_edges": 9, "long_ranges": 8, "defragment": 6}
    assert arguments("sticky") == {"imbalance": "5%", "max_moves": 7, **of_plan}
    weighted = {
        "max_moves": 7, "tolerance": "2%", "max_moved_weight": 1.5, "least_share": "80%",
    }  # fmt: skip
    assert arguments("weighted") == weighted
    manual = {"consumer.assignor.approval": "manual"}
    assert arguments("weighted", **manual) == weighted | {"max_moves": 0}
    waits = AssignorOptions.of_target("uniform", settings | manual, config)
    assert (waits.assignor, waits.max_moves, waits.waits) == ("sticky", 0, True)
