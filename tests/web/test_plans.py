"""Plans in the pages: what one moves, and who may approve or reject it."""

from __future__ import annotations

from functools import partial

import pytest

from coordinator import Coordinator
from coordinator.config import Config, LogConfig, PlansConfig, ServerConfig
from coordinator.config.kafka import kafka_config
from coordinator.core.plans.planner import ShownPlan
from coordinator.history import frame
from coordinator.web.plan_form import BYTES_MAX
from tests.web.browsing import HERE, browse, rows_of
from tests.web.test_access import HOSTILE, refuse_inline

ANN, BOB = ("ann", "secret"), ("bob", "words")
OURS = {"origin": f"http://{HERE}", "sec-fetch-site": "same-origin"}
ODD = HOSTILE[0] + HOSTILE[5]


def config_of(folder):
    """Ann may decide plans, Bob may see the groups."""
    (folder / "users.toml").write_text('[users]\nann = "secret"\nbob = "words"\n')
    (folder / "acls.toml").write_text(
        'super_users = ["User:ann"]\n[[acls]]\nprincipal = "User:bob"\noperations = ["DESCRIBE"]\n'
        'resource_type = "GROUP"\nresource_name = "g"\n[[acls]]\nprincipal = "User:bob"\n'
        'operations = ["DESCRIBE"]\nresource_type = "TOPIC"\nresource_name = "*"\n'
    )
    return Config(
        server=ServerConfig(
            sasl_mechanisms=("PLAIN",), sasl_users=str(folder / "users.toml"),
            acls=str(folder / "acls.toml"),
        ),
        log=LogConfig(fsync=False),
        plans=PlansConfig(poll_ms=20),
        kafka=kafka_config(
            {"group.consumer.assignors": ["weighted"], "group.consumer.assignment.interval.ms": 0}
        ),
    )  # fmt: skip


def join(coordinator, group, *members, topic="clicks"):
    for member in members:
        coordinator.consumer_group_heartbeat(
            group_id=group, member_id=member, member_epoch=0, rebalance_timeout_ms=60_000,
            subscribed_topic_names=[topic], topic_partitions={},
        )  # fmt: skip


@pytest.fixture
def live(tmp_path):
    """A coordinator with two groups; functions that let a plan wait, and that let members join."""
    config, store = config_of(tmp_path), tmp_path / "store"
    topics = {"clicks": 6, ODD: 2}
    with Coordinator.open(store, config=config, topics=topics) as coordinator:
        join(coordinator, "g", "m1", "m2")
        join(coordinator, ODD, *HOSTILE[:2], topic=ODD)

        def propose(group="g", reason="disk", drain="m2"):
            shown: ShownPlan = coordinator.plan(group, drain=[drain], owner="me", reason=reason)
            coordinator.propose_plan(shown)
            return shown.plan

        yield browse(store, config), propose, partial(join, coordinator, "g"), store


def address(plan):
    return "/plan", {"id": plan.group_id, "plan": plan.plan_id}


def decide(client, plan, action="approve", auth=ANN, headers=OURS, **form):
    path, query = address(plan)
    return client.post(
        path, params=query, data={"action": action, **form}, auth=auth, headers=headers,
        follow_redirects=False,
    )  # fmt: skip


def plans_of(store):
    return [
        (row["status"], row["decided_by"], row["decision_reason"])
        for row in frame(store, "plans").to_pylist()
    ]


def test_a_plan_is_listed_shown_and_approved(live):
    client, propose, _, store = live
    assert rows_of(client.get("/plans?id=g", auth=ANN)) == [["The group has had no plans."]]
    plan = propose()
    (listed,) = rows_of(client.get("/plans?id=g&status=waiting", auth=ANN))
    assert listed[:2] == [f"{plan.plan_id}disk", "waiting"]
    assert "1 plan waits for approval" in client.get("/group?id=g", auth=ANN).text
    rows = {row[0]: row for row in rows_of(client.get("/?q=g", auth=ANN))}
    assert "1 plan waits" in rows["g"][1]
    as_json = client.get("/plan.json", params=address(plan)[1], auth=ANN).json()
    assert (as_json["moved"], as_json["drains"], as_json["status"]) == (3, ["m2"], "waiting")
    assert as_json["members"] == [
        {"member_id": "m1", "loses": 0, "gains": 3, "change": 3},
        {"member_id": "m2", "loses": 3, "gains": 0, "change": -3},
    ]
    assert sum(move["partition_count"] for move in as_json["moves"]) == 3
    page = client.get(address(plan)[0], params=address(plan)[1], auth=ANN)
    assert ["clicks 3–5", "3", "m2", "m1"] in rows_of(page)  # noqa: RUF001
    assert "3 → 6" in page.text
    assert "Approve: 3 partitions move" in page.text
    done = decide(client, plan, reason="at night")
    assert done.status_code == 303
    assert "began" in client.get(done.headers["location"], auth=ANN).text
    assert plans_of(store) == [("applied", "User:ann", "at night")]
    assert "Approve" not in client.get(done.headers["location"], auth=ANN).text
    assert client.get("/groups.json", auth=ANN).json()["groups"][-1]["plans_waiting"] == 0
    again = decide(client, plan)
    assert (again.status_code, "a plan applies once" in again.text) == (409, True)


def test_a_plan_is_rejected_and_one_that_drifted_is_not_applied(live):
    client, propose, join_late, store = live
    assert decide(client, propose(), "reject").status_code == 303
    other = propose(drain="m1")
    join_late("m3")
    late = decide(client, other)
    assert late.status_code == 409
    assert "Nothing was decided" in late.text
    assert "members: now m3" in late.text
    assert [status for status, *_ in plans_of(store)] == ["rejected", "waiting"]


def test_only_who_may_decides_and_only_from_our_own_page(live):
    client, propose, _, store = live
    plan = propose()
    path, query = address(plan)
    seen = client.get(path, params=query, auth=BOB)
    assert (seen.status_code, "<button" in seen.text) == (200, False)
    assert "ALTER_CONFIGS" in seen.text
    for refused, code in (
        (decide(client, plan, auth=BOB), 403),
        (decide(client, plan, auth=("ann", "wrong")), 401),
        (decide(client, plan, auth=None), 401),
        (decide(client, plan, headers={}), 403),
        (decide(client, plan, headers={"origin": "http://evil.example"}), 403),
        (decide(client, plan, headers=OURS | {"sec-fetch-site": "cross-site"}), 403),
        (decide(client, plan, headers={"origin": "null"}), 403),
        (decide(client, plan, "apply"), 400),
        (decide(client, plan, reason="x" * 1_001), 400),
        (decide(client, plan, reason="x" * BYTES_MAX), 413),
        (client.post(path, params=query, content=b"\xff=1", auth=ANN, headers=OURS), 400),
        (client.post(path, params={"id": "g"}, auth=ANN, headers=OURS), 400),
        (client.post(path, params={"id": "none", "plan": "x"}, auth=BOB, headers=OURS), 404),
        (client.post("/plans?id=g", auth=ANN, headers=OURS), 405),
        (client.put(path, params=query, auth=ANN, headers=OURS), 405),
        (client.get("/plan?id=g&plan=none", auth=ANN), 404),
        (client.get("/plan?id=g", auth=ANN), 400),
        (client.get("/plans?id=none", auth=ANN), 404),
        (client.get("/plans?id=g&status=x", auth=ANN), 400),
    ):
        assert refused.status_code == code, refused.text
    assert plans_of(store) == [("waiting", None, None)]


def test_without_a_login_no_one_decides(live):
    _, propose, _, store = live
    plan = propose()
    client = browse(store)
    assert client.get(address(plan)[0], params=address(plan)[1]).status_code == 200
    assert decide(client, plan, auth=None).status_code == 403


def test_hostile_names_in_plans_are_text(live):
    client, propose, _, store = live
    plan = propose(ODD, HOSTILE[1], drain=HOSTILE[0])
    pages = [
        client.get("/plans", params={"id": ODD}, auth=ANN),
        client.get(address(plan)[0], params=address(plan)[1], auth=ANN),
    ]
    done = decide(client, plan, reason=ODD)
    assert done.status_code == 303
    pages.append(client.get(done.headers["location"], auth=ANN))
    for page in pages:
        assert page.status_code == 200
        refuse_inline(page.text)
        assert not [c for c in page.text.replace("\n", "") if not c.isprintable()]
    assert plans_of(store) == [("applied", "User:ann", ODD)]


def test_without_a_coordinator_nothing_is_decided(tmp_path):
    config, store = config_of(tmp_path), tmp_path / "store"
    with Coordinator.open(store, config=config, topics={"clicks": 6}) as coordinator:
        join(coordinator, "g", "m1", "m2")
        plan = coordinator.plan("g", drain=["m2"]).plan
        coordinator.propose_plan(plan)
    client = browse(store, config)
    answer = decide(client, plan)
    assert (answer.status_code, "no coordinator is running" in answer.text) == (503, True)
    assert list((store / "plans").glob("*")) == [], "an unanswered request is withdrawn"
    with Coordinator.open(store, config=config, topics={"clicks": 6}):
        assert decide(client, plan).status_code == 303
    assert plans_of(store) == [("applied", "User:ann", "")]
