"""Plans over HTTP: shown, applied, proposed, approved, rejected, rolled back; and by whom."""

from __future__ import annotations

import json
from functools import partial

import pytest

from coordinator import Coordinator
from coordinator.clock import wall_ms
from coordinator.history import frame
from coordinator.history.log_reader import LogReader
from coordinator.history.view_rows import list_rows
from coordinator.web.plan_form import BYTES_MAX
from tests.api.asking import BY_NAME, address, ask, list_all, problem_of, shaped
from tests.web.browsing import HERE, browse
from tests.web.test_plans import ANN, BOB, ODD, config_of, join

OURS = {"origin": f"http://{HERE}", "sec-fetch-site": "same-origin"}


@pytest.fixture
def live(tmp_path):
    """A coordinator with two groups, and a client of its API."""
    config, store = config_of(tmp_path), tmp_path / "store"
    with Coordinator.open(store, config=config, topics={"clicks": 6, ODD: 2}) as coordinator:
        join(coordinator, "g", "m1", "m2")
        join(coordinator, ODD, "x", "y", topic=ODD)
        yield browse(store, config, now_ms=wall_ms()), store, partial(join, coordinator, "g")


def send(client, name, *names, auth=ANN, headers=None, **body):
    return client.post(address(name, *names), json=body, auth=auth, headers=headers)


def sent(client, name, *names, **body):
    """Return what an operation answers."""
    answer = send(client, name, *names, **body)
    assert answer.status_code == 200, answer.text
    return shaped(answer, name)


def plans_of(store):
    return [
        (row["status"], row["principal"], row["decided_by"], row["decision_reason"])
        for row in frame(store, "plans").to_pylist()
    ]


def test_a_plan_is_shown_applied_and_rolled_back(live):
    client, store, _ = live
    before = LogReader(store).position
    shown = sent(client, "makePlan", "g", drain=["m2"], reason="disk")
    assert shown["summary"]["moved"] == 3
    assert shown["plan"]["owner"] == "User:ann"
    assert LogReader(store).position == before, "nothing is kept of it"
    done = sent(client, "applyPlan", "g", plan=shown["plan"], reason="at night")
    assert done["decision"] == "applied"
    assert plans_of(store) == [("applied", "User:ann", "User:ann", "at night")]
    assert list_all(client, "listPlans", "g", auth=ANN) == list_rows(LogReader(store), "plans", "g")
    (row,) = list_all(client, "listPlans", "g", auth=ANN, status="applied")
    assert ask(client, "getPlan", "g", row["plan_id"], auth=ANN)["plan"] == row
    assert row["applied_epoch"] == done["group_epoch"]
    again = problem_of(send(client, "applyPlan", "g", plan=shown["plan"]), 409)
    assert "a plan applies once" in again
    sent(client, "applyPlan", "g", plan=sent(client, "makePlan", "g", undrain=["m2"])["plan"])
    back = sent(client, "makeRollback", "g", to=done["group_epoch"])
    assert back["summary"]["moved"] == 3
    assert "no target of epoch 99" in problem_of(send(client, "makeRollback", "g", to=99), 400)


def test_a_plan_waits_and_is_approved_or_rejected(live):
    client, store, join_late = live
    shown = sent(client, "makePlan", "g", drain=["m2"], settings={}, max_moves=None, add=0)
    waits = sent(client, "applyPlan", "g", plan=shown["plan"], propose=True)
    assert waits == {"group_id": "g", "plan_id": shown["plan"]["plan_id"], "decision": "waiting"}
    problem_of(send(client, "approvePlan", "g", "none"), 404)
    assert sent(client, "approvePlan", "g", waits["plan_id"], reason="yes")["decision"] == "applied"
    other = sent(client, "makePlan", "g", undrain=["m2"])["plan"]
    sent(client, "applyPlan", "g", plan=other, propose=True)
    join_late("m3")
    assert "now m3" in problem_of(send(client, "approvePlan", "g", other["plan_id"]), 409)
    assert sent(client, "rejectPlan", "g", other["plan_id"])["decision"] == "rejected"
    assert [one[0] for one in plans_of(store)] == ["applied", "rejected"]


def test_only_who_may_decides_and_no_other_site(live):
    client, store, _ = live
    plan = sent(client, "makePlan", "g", drain=["m2"])["plan"]
    waiting = sent(client, "applyPlan", "g", plan=plan, propose=True)["plan_id"]
    bodies = {
        "makePlan": {}, "makeRollback": {"to": 1}, "applyPlan": {"plan": plan}, "approvePlan": {},
        "rejectPlan": {},
    }  # fmt: skip
    for name, body in bodies.items():
        names = ("g", waiting)[: BY_NAME[name].path.count("{")]
        post = partial(send, client, name, *names, **body)
        assert "ALTER_CONFIGS" in problem_of(post(auth=BOB), 403)
        for auth in (None, ("ann", "wrong")):
            problem_of(post(auth=auth), 401)
        for headers in (
            {"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"},
            OURS | {"sec-fetch-site": "same-site"}, {"sec-fetch-site": "same-origin"},
        ):  # fmt: skip
            assert "another site" in problem_of(post(headers=headers), 403)
        path = address(name, *names)
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
            text = client.post(
                path, content=json.dumps(body), auth=ANN, headers={"content-type": kind}
            )
            problem_of(text, 415)
        if name != "applyPlan":  # that path lists plans, too
            problem_of(client.get(path, auth=ANN), 405)
        elsewhere = ("none", waiting)[: len(names)]
        problem_of(client.post(address(name, *elsewhere), json=body, auth=BOB), 404)
    assert [one[0] for one in plans_of(store)] == ["waiting"]
    assert send(client, "rejectPlan", "g", waiting, headers=OURS).status_code == 200


def test_odd_bodies_are_refused_and_decide_nothing(live):
    client, store, _ = live
    plan = sent(client, "makePlan", "g", drain=["m2"])["plan"]
    for name, body, code in (
        ("makePlan", {"x": 1}, 400), ("makePlan", {"drain": "m2"}, 400), ("makePlan", [], 400),
        ("makePlan", {"drain": ["nobody"]}, 400),
        ("makePlan", {"assignor": "none"}, 400), ("makePlan", {"max_moves": -1}, 400),
        ("makePlan", {"max_moves": 10**40}, 400), ("makePlan", {"add": -1}, 400),
        ("makePlan", {"add": 10**9}, 400), ("makePlan", {"settings": {"a": "b"}}, 400),
        ("makePlan", {"settings": {"consumer.session.timeout.ms": 1}}, 400),
        ("makePlan", {"as_of": "x"}, 400), ("makePlan", {"as_of": "0"}, 400),
        ("makePlan", {"weights": "kafka://127.0.0.1:9"}, 400),
        ("makePlan", {"without": ["m1", "m2"]}, 400), ("makePlan", {"reason": "x" * 1_001}, 400),
        ("makeRollback", {}, 400), ("makeRollback", {"to": "1"}, 400),
        ("makeRollback", {"to": 10**30}, 400), ("applyPlan", {}, 400),
        ("applyPlan", {"plan": {}}, 400), ("applyPlan", {"plan": plan | {"x": 1}}, 400),
        ("applyPlan", {"plan": plan | {"group_id": ODD}}, 400),
        ("applyPlan", {"plan": plan | {"moves": []}}, 409),
        ("applyPlan", {"plan": plan, "reason": 5}, 400),
    ):  # fmt: skip
        said = problem_of(client.post(address(name, "g"), json=body, auth=ANN), code)
        assert len(said) < 2_000, said
    raw = {"content-type": "application/json"}
    for content in (
        b"\xff",
        b"{",
        b'{"reason": "\\ud800"}',
        b"[" * 10_000,
        b'{"reason": "a" "b"}',
        b"NaN",
        b"null",
    ):
        problem_of(
            client.post(address("makePlan", "g"), content=content, auth=ANN, headers=raw), 400
        )
    problem_of(send(client, "makePlan", "g", reason="x" * BYTES_MAX), 413)
    assert client.post(address("makePlan", "g"), auth=ANN, headers=raw).status_code == 200
    assert "limit" in problem_of(
        client.post(address("makePlan", "g") + "?limit=1", json={}, auth=ANN), 400
    )
    for given in ({"status": "gone"}, {"status": ""}):
        problem_of(client.get(address("listPlans", "g", **given), auth=ANN), 400)
    problem_of(client.get(address("getPlan", "g", "none"), auth=ANN), 404)
    assert plans_of(store) == []


def test_a_hostile_group_is_planned_as_any_other(live):
    client, store, _ = live
    plan = sent(client, "makePlan", ODD, drain=["x"], reason=ODD)["plan"]
    sent(client, "applyPlan", ODD, plan=plan, reason=ODD)
    assert plans_of(store) == [("applied", "User:ann", "User:ann", ODD)]


def test_without_a_login_or_a_coordinator_nothing_is_decided(tmp_path):
    config, store = config_of(tmp_path), tmp_path / "store"
    with Coordinator.open(store, config=config, topics={"clicks": 6}) as coordinator:
        join(coordinator, "g", "m1", "m2")
        plan = coordinator.plan("g", drain=["m2"]).plan
        coordinator.propose_plan(plan)
    problem_of(send(browse(store), "approvePlan", "g", plan.plan_id, auth=None), 403)
    answer = send(browse(store, config), "approvePlan", "g", plan.plan_id)
    assert "no coordinator is running" in problem_of(answer, 503)
    assert answer.headers["retry-after"]
    assert plans_of(store)[0][0] == "waiting"
