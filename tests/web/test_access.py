"""Who may see the pages, what a hostile id or address can do to them, what a browser gets."""

from __future__ import annotations

import base64
import hashlib
import json
import urllib.error
import urllib.request
from dataclasses import replace

import pytest

from coordinator import Coordinator
from coordinator.config import Config, ConfigError, ServerConfig, WebConfig
from coordinator.history import frame
from coordinator.web.access import WebAccess, is_same_origin
from coordinator.web.rendering import ASSETS, STATIC
from tests.support.longer import EVERY
from tests.support.stories import Story, stored
from tests.web.browsing import Tables, browse, five_groups, rows_of

VENDORED = {
    "htmx-2.0.11.min.js": "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
    "htmx-LICENSE.txt": "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38",
}
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "a\u202egnp.exe",
    "line\nbreak\x00\x1b[31m\x7f",
    "../../etc/passwd?x=1&y=2#z",
    "%3Cb%3E %zz +",
    "é" * 200,
    "\U0001f600\ufeff\u2066",
    " ",
]  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return stored(five_groups(), tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Groups, members and topics whose names want to be more than names."""
    batches = []
    for number, name in enumerate(HOSTILE):
        story = Story(name).topics(**{f"topic {number} {name[:60]}": 3})
        story.join(f"m{name}"[:300], f"topic {number} {name[:60]}", instance_id=name or None)
        batches += story.batches
    return stored(batches, tmp_path_factory.mktemp("hostile"))


def test_vendored_files_are_those_that_were_looked_at():
    found = {name: hashlib.sha256((STATIC / name).read_bytes()).hexdigest() for name in VENDORED}
    assert found == VENDORED
    kept = {file.name for file in STATIC.iterdir()}
    assert kept == {*VENDORED, *ASSETS}, "who adds a file adds its licence and its digest here"


def test_every_page_forbids_what_it_does_not_need(store):
    client = browse(store)
    for path in ("/", "/group?id=billing", "/groups.json", "/nowhere", "/?sort=x", "/group?id=no"):
        answer = client.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers
        if "html" in answer.headers["content-type"]:
            refuse_inline(answer.text)


def refuse_inline(html):
    """Refuse scripts and styles in the page, and addresses elsewhere."""
    for tag, attributes in Tables(html).tags:
        assert not [name for name in attributes if name.startswith("on")], attributes
        assert "style" not in attributes
        assert tag != "style"
        if tag == "script":
            assert attributes["src"].startswith("/static/")
        for name in ("href", "src", "action", "hx-get", "data-live"):
            value = attributes.get(name)
            assert value is None or value.startswith(("/", "#")), value
            assert value is None or not value.startswith("//"), value


@pytest.mark.parametrize("number", range(0, len(HOSTILE), 1 if EVERY else 3))
def test_a_hostile_name_is_text_wherever_it_stands(hostile, number):
    client, name = browse(hostile), HOSTILE[number]
    for path, query in (
        ("/", {"q": name}),
        ("/group", {"id": name}),
        ("/group", {"id": name, "q": name, "sort": "-client_id"}),
        ("/picture", {"id": name}),
        ("/loads", {"id": name}),
        ("/history", {"id": name, "member": name}),
        ("/history", {"id": name}),
        ("/offsets", {"id": name}),
        ("/partition", {"id": name, "topic": f"topic {number} {name[:60]}", "partition": 1}),
    ):
        answer = client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        refuse_inline(answer.text)
        assert {"img", "b"}.isdisjoint(tag for tag, _ in Tables(answer.text).tags)
        body = answer.text.replace("\n", "")
        assert not [c for c in body if not c.isprintable()], (
            "no invisible character is sent as it is"
        )
    links = [a["href"] for tag, a in Tables(client.get("/?rows=500").text).tags if tag == "a"]
    found = [link for link in links if link.startswith("/group?")]
    pages = [client.get(link) for link in found]
    assert all(page.status_code == 200 for page in pages), "each link leads to its group"
    rows = client.get("/groups.json?rows=500").json()["groups"]
    assert name in {row["group_id"] for row in rows}, "JSON has the id itself"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/group", 400), ("/group?id=nobody", 404), ("/group?id=billing&at=x", 400),
        ("/group?id=billing&at=999999", 400), ("/group?id=billing&at_ms=-1", 400),
        ("/group?id=billing&at_ms=99999999999999999999", 400), ("/?page=0", 400),
        ("/?page=\u0661", 400), ("/?page=1e9", 400), ("/?rows=100000", 400), ("/?sort=--state", 400),
        ("/?state=Dead", 400), ("/group?id=billing&only=x", 400), ("/?sort=" + "x" * 20_000, 414), ("/picture?id=billing&span=x", 400),
        ("/picture?id=billing&from=9&to=8", 400), ("/picture?id=nobody", 404),
        ("/picture?id=billing&topic=orders&first=-1", 400), ("/partition?id=billing", 400),
        ("/partition?id=billing&topic=orders&partition=x", 400), ("/loads?id=nobody", 404),
        ("/history?id=billing&e_sort=x", 400), ("/history?id=nobody", 404),
        ("/partition?id=billing&topic=none&partition=2147483647", 200),
        ("/static/0/app.js", 404), ("/static/../access.py", 404), ("/group/", 404),
        ("/?page=9999999", 200), ("/?q=" + "x" * 5_000, 200), ("/group?id=" + "x" * 9_000, 404),
    ],
)  # fmt: skip
def test_odd_addresses_are_refused_in_a_line(store, path, code):
    answer = browse(store).get(path, follow_redirects=False)
    assert answer.status_code == code
    assert len(answer.content) < 4_000 or code == 200
    assert "--" not in answer.text, "an address has no options"
    assert browse(store).post("/", data={"x": "1"}).status_code == 405


def test_another_name_of_loopback_is_refused(store):
    """A site may have its own name resolve to 127.0.0.1, and read what this machine serves."""
    client = browse(store)
    for name in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "[::2]:80"):
        assert client.get("/", headers={"host": name}).status_code == 421, name
    for name in ("localhost:8080", "127.0.0.1", "[::1]:8080", "localhost"):
        assert client.get("/", headers={"host": name}).status_code == 200, name


def test_a_form_of_another_site_is_known_by_its_origin():
    assert is_same_origin("a:1", "http://a:1", "same-origin")
    assert is_same_origin("a:1", "https://a:1", None)
    for origin, site in (
        ("http://b", None),
        (None, None),
        ("null", None),
        ("http://a:1", "cross-site"),
    ):
        assert not is_same_origin("a:1", origin, site)


@pytest.fixture
def secured(tmp_path):
    """Users ann, who may see billing, eve, who may see nothing, and root, who may list all."""
    (tmp_path / "users.toml").write_text('[users]\nann = "secret"\neve = "words"\nroot = "wood"\n')
    (tmp_path / "acls.toml").write_text(
        'super_users = ["User:root"]\n[[acls]]\nprincipal = "User:ann"\noperations = ["READ"]\n'
        'resource_type = "GROUP"\nresource_name = "billing"\n'
    )
    return ServerConfig(
        sasl_mechanisms=("PLAIN",), sasl_users=str(tmp_path / "users.toml"),
        acls=str(tmp_path / "acls.toml"),
    )  # fmt: skip


def test_logins_and_access_lists_are_those_of_the_coordinator(store, secured):
    client = browse(store, Config(server=secured))
    refused = client.get("/")
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"].startswith("Basic ")
    for login in (("ann", "wrong"), ("nobody", "secret"), ("", ""), ("ann", "")):
        assert client.get("/", auth=login).status_code == 401
    assert client.get("/", headers={"authorization": "Basic ???"}).status_code == 401
    assert [row[0] for row in rows_of(client.get("/", auth=("ann", "secret")))] == ["billing"]
    assert rows_of(client.get("/", auth=("eve", "words"))) == [["There are no groups yet."]]
    assert len(rows_of(client.get("/", auth=("root", "wood")))) == 5
    assert client.get("/group?id=billing", auth=("ann", "secret")).status_code == 200
    hidden = client.get("/group.json?id=ledger", auth=("ann", "secret"))
    absent = client.get("/group.json?id=nobody", auth=("ann", "secret"))
    assert (hidden.status_code, hidden.text.replace("ledger", "nobody")) == (404, absent.text)


def test_offsets_are_for_those_who_may_see_their_topics(secured, tmp_path):
    story = Story("billing").topics(orders=2, parcels=2).join("m1", "orders")
    batches = story.commit("m1", {"orders": {0: 5}}).batches
    store = stored(batches, tmp_path / "store")
    client, ann = browse(store, Config(server=secured)), ("ann", "secret")
    for path in ("/offsets?id=billing", "/offsets.json?id=billing"):
        refused = client.get(path, auth=ann)
        assert (refused.status_code, "orders" in refused.text) == (403, False)
        assert client.get(path).status_code == 401


def test_pages_that_name_topics_are_for_those_who_may_see_them(store, secured, tmp_path):
    """As with ConsumerGroupDescribe: all topics of the group, or none."""
    config, ann = Config(server=secured), ("ann", "secret")
    pages = (
        *("picture", "history", "history.json", "partition?topic=orders&partition=1"),
        "member?member=m2",
    )
    asked = [f"/{page}{'&' if '?' in page else '?'}id=billing" for page in pages]
    client = browse(store, config)
    for path in asked:
        refused = client.get(path, auth=ann)
        assert (refused.status_code, "needs DESCRIBE" in refused.text) == (403, True)
        assert "orders" not in refused.text
    for path in ("/group?id=billing", "/group.json?id=billing", "/loads?id=billing", "/"):
        shown = client.get(path, auth=ann)
        assert (shown.status_code, "orders" in shown.text) == (200, False), path
    acls = (tmp_path / "acls.toml").read_text()
    history = frame(store, "assignment_history", group_id="billing")
    for name in sorted(set(history["topic"].to_pylist())):
        assert client.get(asked[0], auth=ann).status_code == 403, "not all of them yet"
        acls += '[[acls]]\nprincipal = "User:ann"\noperations = ["DESCRIBE"]\n'
        acls += f'resource_type = "TOPIC"\nresource_name = "{name}"\n'
        (tmp_path / "acls.toml").write_text(acls)
        client = browse(store, config)
    assert [client.get(path, auth=ann).status_code for path in asked] == [200] * len(asked)


def test_findings_are_of_groups_and_topics_that_one_may_see(secured, tmp_path):
    """Topics have grown, and the new part has no owner: of billing and of another group."""
    story = Story("billing").topics(orders=2).join("m1", "orders").topics(orders=3)
    other = Story("ledger").topics(entries=2).join("m1", "entries").topics(entries=3)
    store = stored([*story.batches, *other.batches], tmp_path / "store")
    client = browse(store, Config(server=secured))

    def seen(user, word):
        found = client.get("/doctor.json", auth=(user, word)).json()["findings"]
        return [(row["group_id"], row.get("topic")) for one in found for row in one["rows"]]

    assert seen("root", "wood") == [("billing", "orders"), ("ledger", "entries")]
    assert (seen("eve", "words"), seen("ann", "secret")) == ([], [])
    acls = (tmp_path / "acls.toml").read_text()
    acls += '[[acls]]\nprincipal = "User:ann"\noperations = ["DESCRIBE"]\n'
    acls += 'resource_type = "TOPIC"\nresource_name = "*"\n'
    (tmp_path / "acls.toml").write_text(acls)
    client = browse(store, Config(server=secured))
    assert seen("ann", "secret") == [("billing", "orders")]
    assert client.get("/doctor?id=ledger", auth=("ann", "secret")).status_code == 404
    assert client.get("/doctor").status_code == 401


def test_beyond_this_machine_it_needs_a_login_and_tls(secured, caplog):
    anywhere = "0.0.0.0:8080"
    with pytest.raises(ConfigError, match=r"configure a login .* and TLS"):
        WebAccess(Config(), anywhere)
    with pytest.raises(ConfigError, match="configure TLS"):
        WebAccess(Config(server=secured), anywhere)
    WebAccess(Config(server=replace(secured, insecure=True)), anywhere)
    WebAccess(Config(server=ServerConfig(insecure=True)), anywhere)
    assert "passwords can be read" in caplog.text
    assert "anyone who can reach it sees all groups" in caplog.text
    with pytest.raises(ConfigError, match=r"web\.tls is on"):
        WebAccess(Config(web=WebConfig(tls=True)), "127.0.0.1:0")


def test_a_store_that_cannot_be_read_is_said_in_a_line(tmp_path):
    store = stored(five_groups(), tmp_path)
    client = browse(store)
    for file in (store / "log").glob("*.parquet"):
        file.write_bytes(b"no parquet")
    answer = client.get("/group.json?id=billing")
    assert answer.status_code == 503
    assert "cannot be read" in answer.text
    with pytest.raises(json.JSONDecodeError):
        answer.json()


def test_a_wrong_login_to_the_pages_of_a_coordinator_is_in_its_audit(tmp_path, secured):
    config = Config(server=replace(secured, audit_ms=50))
    wrong = {"authorization": f"Basic {base64.b64encode(b'ann:wrong').decode()}"}
    with (
        Coordinator.open(tmp_path / "s", config=config, topics={"a": 1}) as coordinator,
        coordinator.serve_web("127.0.0.1:0") as pages,
    ):
        for _ in range(3):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(urllib.request.Request(pages.url, headers=wrong))
    audit = frame(tmp_path / "s", "audit").to_pylist()
    assert {(row["action"], row["principal"], row["client_host"]) for row in audit} == {
        ("login_failed", "User:ann", "127.0.0.1")
    }
    assert sum(row["count"] for row in audit) == 3
