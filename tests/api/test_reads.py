"""Groups and members over HTTP: the rows of the views, page by page, and who may see them."""

from __future__ import annotations

import pytest

from coordinator.history.log_reader import LogReader
from coordinator.history.view_rows import list_rows
from tests.api.asking import address, ask, list_all, problem_of
from tests.support.stories import Story, stored
from tests.web.browsing import browse, five_groups
from tests.web.test_access import HOSTILE
from tests.web.test_plans import ANN, BOB, config_of


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return stored(five_groups(), tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def client(store):
    return browse(store)


def test_groups_and_members_are_the_rows_of_the_commands(client, store):
    reading = LogReader(store)
    groups = list_rows(reading, "groups")
    assert list_all(client, "listGroups") == groups
    for row in groups:
        found = ask(client, "getGroup", row["group_id"])
        assert found["group"] == row
        assert found["position"] == reading.position
        members = list_rows(reading, "members", row["group_id"])
        assert list_all(client, "listMembers", row["group_id"]) == members


def test_pages_of_any_size_have_all_rows_in_order(client, store):
    whole = list_all(client, "listGroups")
    for limit in (1, 2, 5):
        assert list_all(client, "listGroups", limit=limit) == whole
    assert "next" not in ask(client, "listGroups", limit=5), "a last page that is full is the last"
    with_members = [one["group_id"] for one in whole if one["members"] > 1]
    assert with_members
    for group in with_members:
        whole = list_all(client, "listMembers", group)
        assert list_all(client, "listMembers", group, limit=1) == whole


def test_a_group_is_as_of_a_position_or_a_time(client, store):
    for as_of in (20, "2026-03-01T11:55:00Z", "2026-03-01T11:55"):
        then = LogReader(store, as_of)
        assert list_all(client, "listGroups", as_of=as_of) == list_rows(then, "groups")
    problem_of(client.get(address("getGroup", "search", as_of=2)), 404)
    assert "positions 1 to" in problem_of(client.get(address("getGroup", "search", as_of=0)), 400)


def test_an_answer_that_still_holds_is_not_sent_again(tmp_path):
    story = Story().topics(orders=4).join("m1", "orders")
    other = Story("other").topics(orders=4).join("x", "orders")
    client = browse(stored(story.batches + other.batches, tmp_path))
    first = client.get(address("getGroup", "billing"))
    tag = {"if-none-match": first.headers["etag"]}
    assert "no-cache" in first.headers["cache-control"]
    again = client.get(address("getGroup", "billing"), headers=tag)
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == tag["if-none-match"]
    many = {"if-none-match": f'"x", {first.headers["etag"].removeprefix("W/")}'}
    assert client.get(address("getGroup", "billing"), headers=many).status_code == 304
    others = {"if-none-match": '"a,*,b", W/"*"'}  # a comma or star in a tag is a part of it
    assert client.get(address("getGroup", "billing"), headers=others).status_code == 200
    for path in (
        address("getGroup", "other"), address("getGroup", "billing", as_of=3),
        address("listMembers", "billing"),
    ):  # fmt: skip
        assert client.get(path, headers=tag).status_code == 200, "a tag is of one address"
    later = Story().topics(orders=4).join("m1", "orders").join("m2", "orders")
    changed = browse(stored(later.batches + other.batches, tmp_path / "later"))
    assert changed.get(address("getGroup", "billing"), headers=tag).status_code == 200


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("x=1", "no parameter 'x'"), ("limit=0", "1 to 1000"), ("limit=1001", "1 to 1000"),
        ("limit=%D9%A1", "whole number"), ("limit=" + "9" * 5_000, "whole number"),
        ("limit=", "limit is empty"), ("limit=1&limit=2", "given twice"), ("state=stable", "Stable"),
        ("state=Dead", "one of"), ("as_of=x", "neither a position nor a time"),
        ("as_of=2026-03-01T12:00:00%00", "neither"), ("as_of=-5", "positions 1 to"),
        ("as_of=999999999999999999", "positions 1 to"), ("as_of=" + "9" * 400, "neither"),
        ("as_of=9999-12-31", "in the future"), ("as_of=0001-01-01", "before the first record"),
        ("as_of=2026-03-01T12:00%2B99:00", "neither"), ("cursor=x", "take it from `next`"),
        ("cursor=W10", "take it from"), ("cursor=WzFd", "take it from"), ("cursor=%00", "take it"),
        ("cursor=" + "A" * 9_000, "take it from"), ("cursor=WyJiIiwiYyJd", "take it from"),
        ("q=%FF", "cannot be read"), ("%FF", "cannot be read"), ("&".join("abcdefghijklmnopqrstuvw"), "cannot be read"),
    ],
)  # fmt: skip
def test_an_odd_query_is_refused_with_a_remedy(client, query, said):
    assert said in problem_of(client.get(f"/api/v1/groups?{query}"), 400)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/api", 404), ("/api/", 404), ("/api/v1", 404), ("/api/v2/groups", 404),
        ("/api/v1/groups/", 404), ("/api/v1/groups//members", 404), ("/api/v1/groups/%FF", 404),
        ("/api/v1/groups/nobody", 404), ("/api/v1/groups/a/b", 404),
        ("/api/v1/groups/billing/members/", 404), ("/api/v1/GROUPS", 404),
        ("/api/v1/groups/" + "x" * 9_000, 404), ("/api/v1/groups/%00", 404),
        ("/api/v1/groups?limit=" + "1" * 20_000, 414),
    ],
)  # fmt: skip
def test_an_odd_path_is_a_problem(client, path, code):
    detail = problem_of(client.get(path), code)
    assert len(detail) < 10_000
    assert detail.isprintable()


def test_a_hostile_id_names_its_group(tmp_path):
    names = [*HOSTILE, "a/b", "a%2Fb", "a+b", ".", "groups", "a;b=c", "ü/../%00"]
    batches = [one for name in names for one in Story(name).topics(t=1).join(name, "t").batches]
    client = browse(stored(batches, tmp_path))
    for name in names:
        if name == ".":
            continue  # a client takes it out of the path: docs/reference/http.md
        assert ask(client, "getGroup", name)["group"]["group_id"] == name
        (member,) = list_all(client, "listMembers", name)
        assert member["member_id"] == name
    found = list_all(client, "listGroups", limit=1)
    assert sorted(one["group_id"] for one in found) == sorted(names), "cursors carry any id"
    assert client.get(address("listGroups")).text.strip().isprintable()


def test_a_method_that_no_path_has_is_refused(client):
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        answer = client.request(method, address("listGroups"))
        problem_of(answer, 405)
        assert answer.headers["allow"] == "GET, HEAD"
    assert client.head(address("listGroups")).status_code == 200


def test_the_api_has_the_logins_and_the_access_lists_of_the_pages(tmp_path):
    stories = [
        Story(name).topics(**{topic: 2}).join("m", topic)
        for name, topic in (("g", "clicks"), ("h", "hidden"))
    ]
    store = stored([one for story in stories for one in story.batches], tmp_path / "store")
    client = browse(store, config_of(tmp_path))
    for path in (address("listGroups"), "/api/v1/nothing"):
        answer = client.get(path)
        assert "Log in" in problem_of(answer, 401)
        assert answer.headers["www-authenticate"].startswith("Basic")
    problem_of(client.get(address("listGroups"), auth=("ann", "wrong")), 401)
    assert [one["group_id"] for one in list_all(client, "listGroups", auth=ANN)] == ["g", "h"]
    assert [one["group_id"] for one in list_all(client, "listGroups", auth=BOB)] == ["g"]
    hidden = problem_of(client.get(address("getGroup", "h"), auth=BOB), 404)
    absent = problem_of(client.get(address("getGroup", "i"), auth=BOB), 404)
    assert hidden.replace("'h'", "") == absent.replace("'i'", "")
    tags = {client.get(address("listGroups"), auth=one).headers["etag"] for one in (ANN, BOB)}
    assert len(tags) == 2, "who sees less has another answer"
    assert problem_of(
        browse(store).get(address("listGroups"), headers={"host": "evil.example"}), 421
    )


def test_members_whose_topics_one_may_not_see_are_not_shown(tmp_path):
    config = config_of(tmp_path)
    acls = (tmp_path / "acls.toml").read_text()
    (tmp_path / "acls.toml").write_text(acls.replace('"*"', '"clicks"'))
    store = stored(
        Story("g").topics(clicks=1, secret=1).join("m", "clicks", "secret").batches,
        tmp_path / "store",
    )
    client = browse(store, config)
    assert "DESCRIBE" in problem_of(client.get(address("listMembers", "g"), auth=BOB), 403)
    assert len(list_all(client, "listMembers", "g", auth=ANN)) == 1
    assert ask(client, "getGroup", "g", auth=BOB)["group"]["members"] == 1
