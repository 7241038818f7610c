"""The pages in a real browser: `make test-web`. MUSTER_SHOTS=folder keeps screenshots."""

from __future__ import annotations

import os
import shutil
import time
from itertools import pairwise
from pathlib import Path

import pytest

from coordinator import Coordinator
from coordinator.config import LogConfig
from coordinator.core.state.records import GroupMetadata
from coordinator.history import frame
from coordinator.storage.delta_log import DeltaLog
from coordinator.web.server import WebServer
from tests.member.runs import until
from tests.support.stories import Story, stored
from tests.web.browsing import five_groups
from tests.web.test_access import HOSTILE
from tests.web.test_plans import ANN, BOB, ODD, config_of, join

WANTED = os.environ.get("MUSTER_WEB")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
pytestmark = pytest.mark.skipif(not WANTED, reason="needs a browser: make test-web")
SHOTS = os.environ.get("MUSTER_SHOTS")
PHONE = {"width": 375, "height": 740}
WIDE = {"width": 1200, "height": 900}
TOPICS = {"clicks": 12, "orders": 6}


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, BROWSERS)))
    with sync_playwright() as playwright:
        # Chromium's sandbox does not work for root.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        started = playwright.chromium.launch(executable_path=path, args=arguments)
        yield started
        started.close()


@pytest.fixture
def opened(browser):
    """Open a page; whatever the browser complains of fails the test."""
    contexts, complaints = [], []

    def open_page(url, viewport=WIDE, *, quiet=True, **options):
        contexts.append(browser.new_context(viewport=viewport, **options))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        if quiet:  # a refused page says so there, too
            page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


class Crowd:
    """Members of a coordinator that do at once what answers say."""

    def __init__(self, coordinator, group):
        self.coordinator, self.group, self.members = coordinator, group, {}

    def beat(self, member, epoch=None):
        known, owned = self.members.get(member, (0, {}))
        answer = self.coordinator.consumer_group_heartbeat(
            group_id=self.group, member_id=member, member_epoch=known if epoch is None else epoch,
            rebalance_timeout_ms=60_000, subscribed_topic_names=sorted(TOPICS),
            topic_partitions=owned,
        )  # fmt: skip
        assigned = answer.assignment
        self.members[member] = (answer.member_epoch, owned if assigned is None else assigned)

    def join(self, *members):
        for member in members:
            self.beat(member, 0)
            self.settle()

    def leave(self, member):
        self.beat(member, -1)
        del self.members[member]
        self.settle()

    def settle(self):
        for _ in range(6):
            for member in sorted(self.members):
                self.beat(member)


@pytest.fixture
def live(tmp_path):
    """A coordinator with a group that has a history, its members, and its pages."""
    with Coordinator.open(tmp_path / "store", topics=TOPICS) as coordinator:
        crowd = Crowd(coordinator, "billing")
        crowd.join("ann")
        time.sleep(1)
        crowd.join("bob", "cid")
        time.sleep(1)
        crowd.leave("bob")
        time.sleep(1)
        crowd.join("dora")
        Crowd(coordinator, "shipping").join("eve")
        with coordinator.serve_web("127.0.0.1:0") as pages:
            yield crowd, pages.url


def await_true(page, expression, seconds=15):
    """Wait until an expression is true; the page forbids the browser to evaluate it by itself."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(50)


def shoot(page, name):
    if SHOTS:
        path = str(Path(SHOTS) / f"{name}.png")
        # or it hides the caret by a style of its own, which the page forbids
        page.screenshot(path=path, full_page=True, caret="initial")


def check_accessibility(page):
    """Refuse what axe-core calls serious or critical."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    grave = [one for one in found if one["impact"] in {"serious", "critical"}]
    assert grave == [], [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in grave]


def test_a_member_joins_and_one_is_gone_and_the_page_says_so(live, opened):
    crowd, url = live
    page = opened(f"{url}group?id=billing")
    page.wait_for_selector("#live:text('live')")
    page.wait_for_selector("svg.lanes")
    page.wait_for_selector("#loads table")
    page.wait_for_selector("#offsets >> text=has committed nothing")
    check_accessibility(page)
    shoot(page, "group")
    crowd.beat("fay", 0)
    page.wait_for_selector("#members >> text=fay")
    crowd.settle()
    crowd.leave("fay")
    page.wait_for_selector("#members >> text=fay", state="detached")
    page.wait_for_selector("#now >> text=member left")
    await_true(
        page,
        "[...document.querySelectorAll('svg.lanes title')].some(t => t.textContent.includes('fay'))",
    )


def test_offsets_and_a_member_can_be_read_by_all(tmp_path, opened):
    story = Story("billing").topics(orders=9)
    story.join("m1", "orders").commit("m1", {"orders": dict.fromkeys(range(9), 5)})
    story.hold_on("m1").at(1).join("m2", "orders")
    with WebServer(stored(story.batches, tmp_path / "store"), listen="127.0.0.1:0") as pages:
        for path in ("offsets?id=billing&rows=5", "member?id=billing&member=m1"):
            page = opened(f"{pages.url}{path}", PHONE)
            check_accessibility(page)
            shoot(page, path.partition("?")[0])
        page.goto(f"{pages.url}offsets?id=billing&rows=5")
        page.click("#offsets >> text=next")
        page.wait_for_selector("#offsets >> text=9 of 9 offsets")
        page.click("thead >> text=Offset")
        page.wait_for_selector("#offsets >> text=5 of 9 offsets")


def test_the_time_here_is_beside_utc(tmp_path, opened):
    """Where it is another one, on every time that says when, and on each that says how long ago."""
    store = stored(five_groups(), tmp_path / "old")  # on 2026-03-01
    with WebServer(store, listen="127.0.0.1:0") as pages:
        page = opened(f"{pages.url}history?id=billing", timezone_id="Asia/Kolkata")
        await_true(page, "document.querySelector('#epochs time').textContent.endsWith(' here')")
        text = page.text_content("#epochs tbody tr:last-child td:nth-of-type(1)")
        assert text == "2026-03-01 11:55:00 UTC · 17:25:00 here"
        page.goto(f"{pages.url}group?id=billing")
        await_true(page, "document.querySelector('#slider + output').textContent.endsWith(' here')")
        page.goto("about:blank")  # a page that is open asks again while the server closes
        page = opened(f"{pages.url}history?id=billing", timezone_id="America/Los_Angeles")
        page.click("#epochs >> text=Began")  # that redraws the table
        page.wait_for_selector("#epochs th[aria-sort]")
        await_true(page, "document.querySelector('#epochs time').textContent.endsWith(' here')")
        page = opened(f"{pages.url}history?id=billing", timezone_id="UTC")
        assert " here" not in page.text_content("#epochs")
    with Coordinator.open(tmp_path / "new", topics=TOPICS) as coordinator:
        Crowd(coordinator, "billing").join("ann")
        with coordinator.serve_web("127.0.0.1:0") as pages:
            page = opened(f"{pages.url}group?id=billing", timezone_id="Asia/Kolkata")
            await_true(page, "document.querySelector('.why time').title.endsWith(' here')")
            await_true(page, "/^now$| ago$/.test(document.querySelector('.why time').textContent)")
            page.goto("about:blank")


def test_the_slider_shows_former_times_and_the_way_back(live, opened):
    _, url = live
    page = opened(f"{url}group?id=billing")
    slider = page.locator("#slider")
    slider.focus()
    page.keyboard.press("Home")
    page.wait_for_selector("text=Go to now")
    assert "at_ms=" in page.url
    assert page.locator("#members tbody tr").count() == 1
    page.wait_for_selector("#live", state="hidden")
    page.click("text=epoch after")
    page.wait_for_selector("#now >> text=bob")
    page.go_back()
    page.wait_for_selector("#members >> text=ann")
    page.click("#now >> text=Go to now")
    page.wait_for_selector("#members >> text=dora")
    page.wait_for_selector("#live:text('live')")


def test_the_sign_says_since_when_and_why_a_page_is_not_live(tmp_path, opened, caplog):
    def tries():
        return caplog.text.count("could not read a live page")

    store = tmp_path / "store"
    with Coordinator.open(store, topics=TOPICS) as coordinator:
        Crowd(coordinator, "billing").join("ann")
    with WebServer(store, listen="127.0.0.1:0") as pages:
        page = opened(pages.url)
        page.wait_for_selector("#live:text('live')")
        store.rename(tmp_path / "away")
        page.wait_for_selector("#live.off:text('cannot be read')")
        text, seen = page.text_content("#live"), tries()
        assert until(lambda: tries() > seen)
        assert page.text_content("#live") == text, "since when, not when it was tried last"
        (tmp_path / "away").rename(store)
        page.wait_for_selector("#live:not(.off)", timeout=20_000)


def test_a_page_outlives_its_server(tmp_path, opened):
    store = tmp_path / "store"
    with Coordinator.open(store, topics=TOPICS) as coordinator:
        Crowd(coordinator, "billing").join("ann")
        with WebServer(store, listen="127.0.0.1:0") as pages:
            page = opened(pages.url, quiet=False)
            page.wait_for_selector("#live:text('live')")
        page.wait_for_selector("#live.off")
        page.click("thead >> text=Members")
        page.wait_for_selector("#live.off:text('not live since')")
        Crowd(coordinator, "late").join("bob")
        with WebServer(store, listen=pages.url.removeprefix("http://").rstrip("/")):
            page.wait_for_selector("#live:not(.off)", timeout=15_000)
            page.wait_for_selector("#list >> text=late")


def test_a_page_finds_out_that_it_slept(live, opened):
    """Of a connection that ended without a word, a browser does not tell."""
    _, url = live
    page = opened(url)
    page.clock.install()
    page.goto(url)
    page.wait_for_selector("#live:text('live')")
    page.evaluate(
        "const sign = document.getElementById('live'); window.texts = [];"
        "new MutationObserver(() => window.texts.push(sign.textContent))"
        ".observe(sign, {childList: true})"
    )
    page.clock.fast_forward(3_600_000)
    await_true(page, "window.texts.length > 1 && window.texts.at(-1) === 'live'")
    assert page.evaluate("window.texts[0]").startswith("not live since")


def test_a_group_that_is_gone_comes_back_and_former_times_without_it_are_shown(live, opened):
    crowd, url = live
    page = opened(f"{url}group?id=shipping", quiet=False)
    page.wait_for_selector("#live:text('live')")
    shipping = Crowd(crowd.coordinator, "shipping")
    shipping.members["eve"] = (1, {})
    shipping.leave("eve")
    crowd.coordinator.delete_groups(["shipping"])
    page.wait_for_selector("#live.off:text('no group')")
    gone_ms = int(time.time() * 1000)
    time.sleep(1)
    shipping.join("zoe")
    page.wait_for_selector("#live:not(.off)", timeout=15_000)
    page.wait_for_selector("#members >> text=zoe")
    page.evaluate(
        "at => { const s = document.getElementById('slider'); s.value = at;"
        " s.dispatchEvent(new Event('change', {bubbles: true})); }",
        gone_ms,
    )
    page.wait_for_selector("h1:text('404')")
    assert f"There is no group 'shipping' at {time.gmtime().tm_year}-" in page.text_content("main")


def test_what_a_reader_does_outlives_changes(live, opened):
    """The order stays when a filter is typed, and the focus when a part is redrawn."""
    crowd, url = live
    page = opened(f"{url}group?id=billing")
    page.wait_for_selector("#live:text('live')")
    page.locator("#members thead >> text=Owns").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("th[aria-sort] >> text=Owns")
    focused = "document.activeElement.matches('a') && document.activeElement.textContent.trim()"
    await_true(page, f"/^Owns/.test({focused})")
    page.locator("#members a:has-text('ann')").focus()
    end = page.get_attribute("#slider", "max")
    crowd.join("fay")
    page.wait_for_selector("#members >> text=fay")
    assert page.evaluate(focused) == "ann"
    assert page.get_attribute("#slider", "max") > end, "the slider goes on to now"
    page.locator("input[name=q]").type("a")
    page.wait_for_url("**q=a**")
    page.wait_for_selector("th[aria-sort] >> text=Owns")


def test_the_picture_leads_to_reasons(live, opened):
    _, url = live
    page = opened(f"{url}picture?id=billing")
    assert page.locator("svg.lanes rect title").count() > 10
    title = page.locator("a:has(.epoch) title").nth(1).text_content()
    assert "member joined (bob)" in title
    page.locator("a:has(text.lane)").first.click()
    page.wait_for_selector("h1:has-text('clicks')")
    assert "owns it, and got it" in page.locator(".why").text_content()
    check_accessibility(page)


def test_names_of_lanes_are_not_cut_off(tmp_path, opened):
    topics = {f"payments-of-customers-in-region-{n:02}": 900 for n in range(45)} | {"価格": 9}
    story = Story("billing").topics(**topics).join("m", *topics)
    with WebServer(stored(story.batches, tmp_path), listen="127.0.0.1:0") as pages:
        for query in ("", "&topic=価格", "&topic=payments-of-customers-in-region-01&first=100"):
            page = opened(f"{pages.url}picture?id=billing{query}")
            cut = page.evaluate(
                "[...document.querySelectorAll('text.lane')].filter("
                "t => t.getBBox().x < t.ownerSVGElement.viewBox.baseVal.x).map(t => t.textContent)"
            )
            assert cut == [], query
        page = opened(f"{pages.url}picture?id=billing")
        assert "…" in page.text_content("text.lane >> nth=0")
        page.locator("a:has(text.lane)").nth(0).click()
        page.wait_for_selector("text=all partitions")
        assert "region-00" in page.text_content("svg.lanes")
        assert "価格" not in page.text_content("svg.lanes")
        page.click("text=all partitions")
        await_true(page, "document.querySelector('svg.lanes').textContent.includes('価格')")


def test_many_groups_are_filtered_sorted_and_paged(tmp_path, opened):
    store = tmp_path / "store"
    log = DeltaLog(store, LogConfig(fsync=False))
    log.claim("test", "", 1)
    names = [f"team-{n % 40:02}.service-{n:05}" for n in range(15_000)]
    log.append([GroupMetadata(name, 1, 0) for name in names], 1_772_366_400_000)
    log.close()
    with WebServer(store, listen="127.0.0.1:0") as pages:
        page = opened(pages.url)
        assert "15,000 groups" in page.locator(".pager").text_content()
        page.click("a[rel=next]")
        page.wait_for_url("**page=2**")
        page.locator("input[name=q]").type("service-00777")
        page.wait_for_selector("text=1–1 of 1 groups")  # noqa: RUF001
        assert "q=service-00777" in page.url
        page.locator("input[name=q]").fill("")
        page.wait_for_selector("text=of 15,000 groups")
        for order in ("ascending", "descending"):
            page.click("th >> text=Group")
            page.wait_for_selector(f"th[aria-sort={order}]")
        assert page.locator("tbody th").first.text_content() == max(names)
        page.goto("about:blank")  # a page that is open asks again while the server closes


def test_hostile_names_are_text(tmp_path, opened):
    batches = []
    for name in HOSTILE:
        batches += Story(name).topics(t=2).join(f"m{name}", "t", instance_id=name).batches
    with WebServer(stored(batches, tmp_path), listen="127.0.0.1:0") as pages:
        page = opened(f"{pages.url}?rows=100")
        assert page.locator("tbody tr").count() == len(HOSTILE)
        for number in range(len(HOSTILE)):
            page.goto(f"{pages.url}?rows=100")
            page.locator("tbody th a").nth(number).click()
            page.wait_for_selector("svg.lanes")
            assert page.locator("#members tbody tr").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_every_page_is_accessible_and_fits(live, opened, scheme, viewport):
    _, url = live
    ids = "id=billing"
    for name, path in (
        ("groups", ""), ("group", f"group?{ids}"), ("history", f"history?{ids}"),
        ("partition", f"partition?{ids}&topic=clicks&partition=3"), ("loads", f"loads?{ids}"),
    ):  # fmt: skip
        page = opened(url + path, viewport, color_scheme=scheme)
        if name == "group":
            page.wait_for_selector("svg.lanes")
            page.wait_for_selector("#loads table")
        check_accessibility(page)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= viewport["width"], f"{name} is {wide} px wide"
        shoot(page, f"{name}-{scheme}-{viewport['width']}")


def test_all_can_be_done_by_keyboard(live, opened):
    _, url = live
    page = opened(url)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "billing":
            break
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('billing')")
    seen = []
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.outerHTML.slice(0, 400)"))
    assert all(one != two for one, two in pairwise(seen) if "<body" not in one)
    for what in ("slider", "as tables", "clicks 0", "Owns"):
        assert any(what in one for one in seen), what


def test_a_plan_is_approved_by_who_may(tmp_path, opened):
    config = config_of(tmp_path)
    with Coordinator.open(tmp_path / "store", config=config, topics={ODD: 6}) as coordinator:
        join(coordinator, "g", "m1", HOSTILE[1], topic=ODD)
        for reason in ("disk", "again"):
            shown = coordinator.plan("g", drain=[HOSTILE[1]], owner=ODD, reason=reason)
            coordinator.propose_plan(shown)
        with coordinator.serve_web("127.0.0.1:0") as pages:
            bob = opened(f"{pages.url}group?id=g", http_credentials=login(BOB))
            bob.click("text=wait for approval")
            bob.click("#plans tbody th a")
            bob.wait_for_selector("#moves tbody tr")
            assert bob.locator("main button").count() == 0
            ann = opened(f"{pages.url}plans?id=g&status=waiting", http_credentials=login(ANN))
            ann.click("#plans tbody th a")
            check_accessibility(ann)
            shoot(ann, "plan")
            ann.fill("input[name=reason]", HOSTILE[0])
            ann.click("text=Reject")
            ann.wait_for_selector("text=It was rejected")
            ann.click("nav >> text=plans")
            ann.select_option("select[name=status]", "waiting")
            ann.wait_for_selector("text=1–1 of 1 plans")  # noqa: RUF001
            ann.click("#plans tbody th a")
            ann.keyboard.press("Tab")
            ann.click("text=Approve")
            ann.wait_for_selector("text=began")
            bob.goto(f"{pages.url}group?id=g")
            bob.wait_for_selector("#now >> text= applied")
    assert [row["decided_by"] for row in frame(tmp_path / "store", "plans").to_pylist()] == [
        "User:ann"
    ] * 2


def login(user):
    name, password = user
    return {"username": name, "password": password}


def test_without_javascript_every_page_is_whole(browser, tmp_path):
    with WebServer(stored(five_groups(), tmp_path), listen="127.0.0.1:0") as pages:
        context = browser.new_context(java_script_enabled=False)
        page = context.new_page()
        page.goto(pages.url)
        page.fill("input[name=q]", "bill")
        page.click("button")
        page.click("tbody a")
        page.click("text=Who owned what over time")
        assert page.locator("svg.lanes rect").count() > 10
        page.click("text=as tables")
        assert page.locator("tbody tr").count() > 10
        context.close()
