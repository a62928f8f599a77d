"""The console in a real browser: what its screens say, with each kind of key and by keyboard, and
what was stored to do harm."""

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from strandline import Strandline
from strandline.local.runtime import RunningService
from tests.browser.conftest import WAIT_MS, PageLog, listen
from tests.browser.console.console_pages import (
    HOSTILE_TEXTS,
    MARA,
    QUESTION,
    SECRET,
    UNKNOWN,
    DemoMemory,
    Keys,
    fill_demo_memory,
    go,
    make_hostile_event,
    open_console,
    to_shown_text,
    wait_until_loaded,
)


@pytest.fixture(scope="module")
def keys(service: RunningService) -> Keys:
    return Keys(service)


@pytest.fixture(scope="module")
def demo(service: RunningService, keys: Keys) -> DemoMemory:
    return fill_demo_memory(service, keys)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    expect.set_options(timeout=WAIT_MS)
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    yield page
    context.close()


@pytest.fixture
def page_log(page: Page) -> PageLog:
    return listen(page.context)


def test_console_pages_say_what_demo_holds(
    page: Page, page_log: PageLog, service: RunningService, demo: DemoMemory
) -> None:
    open_console(page, service, demo.admin, f"#/people?scope={demo.scope_id}")
    wait_until_loaded(page)
    feed = page.get_by_role("feed")
    expect(feed.get_by_text("was erased")).to_have_count(1)
    expect(feed.get_by_text("It goes into the drawer, too.")).to_be_visible()
    expect(page.get_by_text(SECRET)).to_have_count(0)
    expect(feed.get_by_text("Without a session: stated facts")).to_have_count(1)
    expect(page.locator(".conversation-head")).to_contain_text("stored, 1 of them erased")
    position = page.locator(".conversation-tools [role=status]")
    expect(position).to_have_text(re.compile(r"^event ([\d,]+) of \1, the last$"))
    page.get_by_role("button", name="Oldest").click()
    expect(feed.locator("article").first).to_be_in_viewport()
    expect(position).to_contain_text("event 1 of ")

    go(page, "recall", q=QUESTION)
    expect(page.locator(".hit").first).to_contain_text("red pouch")
    expect(page.locator(".known")).to_contain_text("threshold")
    expect(page.locator(".known")).to_contain_text("not that it answers")
    expect(page.locator(".hit").first.locator(".bars > div").first).to_be_visible()
    expect(page.locator(".prompt .row")).to_contain_text("tokens of 1,000")
    page.locator(".block a").first.click()
    expect(page.locator("main h1")).to_have_text("Event")
    wait_until_loaded(page)
    expect(page.get_by_text("hashes to its CID")).to_be_visible()

    go(page, "recall", q="What is Mara's blood type?", min="0")
    expect(page.locator(".doubt")).to_contain_text("In no hit: blood, type. The hits match by mara")
    expect(page.locator(".doubt")).to_contain_text("The best relevance is")
    go(page, "recall", q="Where does Mara work?")
    former = page.locator(".hit", has_text="Hansen Boats")
    expect(former.locator(".badge.warn")).to_have_text("perhaps no longer so")
    former.get_by_role("link", name="What was said later").click()
    expect(page.locator(".event-card")).to_contain_text("Nordic Sails")
    go(page, "recall", q=QUESTION, compare="settings")
    tops = "all => new Set(all.map((it) => it.getBoundingClientRect().top)).size"
    assert page.locator(".settings > summary").evaluate_all(tops) == 1
    go(page, "recall", q=UNKNOWN)
    expect(page.get_by_text("Why nothing came")).to_be_visible()
    go(page, "event", row=demo.fact_id)
    expect(page.get_by_text("Node of the graph")).to_be_visible()
    expect(page.locator(".links a")).to_have_count(1)
    go(page, "overview")
    expect(page.get_by_text("All is well")).to_be_visible()
    expect(page.locator("svg.plot .bar").first).to_be_attached()
    expect(page.locator(".figures")).to_contain_text("events stored, erased ones counted")
    page.locator(".figures").get_by_role("link", name="facts").click()
    expect(page.get_by_text("Drawn: ")).to_be_visible()
    assert page_log.complaints == page_log.violations == []


def test_console_pages_show_hostile_texts_as_text(
    page: Page, page_log: PageLog, service: RunningService, keys: Keys
) -> None:
    key = keys.make("hostile", "read", "write", "admin")
    assert len(HOSTILE_TEXTS) == 100
    events = [make_hostile_event(n, text) for n, text in enumerate(HOSTILE_TEXTS)]
    with Strandline(service.url, key) as memory:
        batch = memory.add_batch(events, atomic=True)
        scopes = {str(result.event.scope_id) for result in batch.results if result.event}
        ids = [str(result.event.event_id) for result in batch.results if result.event]
    open_console(page, service, key)
    for n, text in enumerate(HOSTILE_TEXTS):
        go(page, "event", id=ids[n])
        content = page.locator(".event-card .event-body .stored").first
        assert content.evaluate("it => it.textContent") == to_shown_text(text), n
        kinds = "it => [...it.querySelectorAll('*')].map(one => one.className)"
        assert set(content.evaluate(kinds)) <= {"hidden-character"}, n
    for scope_id in sorted(scopes)[:10]:
        go(page, "people", scope=scope_id)
        page.locator(".metadata summary").first.click()
    for tab in ("people", "scopes", "sessions"):
        go(page, "people", tab=tab)
        expect(page.locator(".virtual-row").first).to_be_visible()
    for text in HOSTILE_TEXTS[::10]:
        go(page, "recall", q=text, limit="50", min="0")
        assert page.locator("textarea").input_value() == text.replace("\r", "\n")
    go(page, "overview")
    assert page.evaluate("window.hurt") is None
    assert page.locator("main script, main iframe, main img, main style, main link").count() == 0
    assert page.locator("a[href^='javascript']").count() == 0
    assert page_log.complaints == page_log.violations == []
    assert page_log.list_foreign_requests(service.url) == []


def test_console_pages_use_linked_key_after_its_name(
    page: Page, page_log: PageLog, service: RunningService, demo: DemoMemory
) -> None:
    page.goto(f"{service.url}/console#/people?scope={demo.scope_id}&key={demo.bound}")
    expect(page.get_by_text("It was not used yet: API key ")).to_be_visible()
    assert demo.bound not in page.url
    assert [u for u in page_log.requests if "/api/" in u] == [], "not before it was named"
    page.get_by_role("button", name="Use this key").click()
    wait_until_loaded(page)
    assert f"scope={demo.scope_id}" in page.url
    assert demo.bound not in page.evaluate("JSON.stringify([location.href, history.state])")
    storage = "[localStorage.length, sessionStorage.length, document.cookie]"
    assert page.evaluate(storage) == [0, 0, ""]
    page.evaluate("key => { location.hash = '#key=' + key }", demo.reader)
    expect(page.get_by_text("It would take the place of API key")).to_be_visible()
    assert demo.reader not in page.url
    page.get_by_role("button", name="Go on with mine").click()
    expect(page.locator(".account summary")).to_contain_text("mara")
    page.reload()
    expect(page.get_by_label("API key or token")).to_be_visible()
    page.get_by_label("API key or token").fill(demo.bound)
    page.get_by_label("Keep it in this tab").check()
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("navigation")).to_be_visible()
    page.reload()
    expect(page.get_by_role("navigation")).to_be_visible()
    assert page_log.complaints == page_log.violations == []


def test_console_pages_show_what_key_may_read(
    page: Page, service: RunningService, demo: DemoMemory, keys: Keys
) -> None:
    open_console(page, service, demo.bound, "#/people")
    wait_until_loaded(page)
    expect(page.locator(".virtual-row")).to_have_count(3)  # not that of Tomas and Keel alone
    assert "agent:keel user:tomas" not in page.locator(".virtual-list").inner_text().split("\n")
    go(page, "people", **{"as": "*"})
    expect(page.get_by_text("Say for whom to read.")).to_be_visible()

    open_console(page, service, demo.reader, "#/people")
    expect(page.get_by_text("Say for whom to read.")).to_be_visible()
    page.get_by_label("Read for these participants").fill("user:tomas, agent:keel")
    page.get_by_role("button", name="Read").click()
    wait_until_loaded(page)
    expect(page.locator(".virtual-row")).to_have_count(2)
    assert "key=" not in page.url

    open_console(page, service, keys.make("ops", "operator"))
    expect(page.get_by_role("link", name="Overview")).to_be_visible()
    expect(page.get_by_role("link", name="Recall debugger")).to_have_count(0)
    wait_until_loaded(page)
    expect(page.locator(".notice.bad")).to_have_count(0)


def test_console_pages_say_for_whom_they_read(
    page: Page, page_log: PageLog, service: RunningService, demo: DemoMemory
) -> None:
    open_console(page, service, demo.admin, "#/people?tab=people")
    wait_until_loaded(page)
    expect(page.locator(".people-list")).to_contain_text("erased ones are counted")
    expect(page.locator("main > .notice")).to_have_count(0)
    place = page.get_by_role("navigation").bounding_box()
    page.locator(".account summary").click()
    assert page.get_by_role("navigation").bounding_box() == place, "the menu moves nothing"
    page.get_by_role("link", name="user:mara").click()
    expect(page.locator("main > .notice")).to_contain_text("Now reading for user:mara")
    page.get_by_role("button", name="Change").click()
    expect(page.locator("datalist option[value='user:tomas']")).to_have_count(1)
    page.locator(".reader-form").get_by_role("button", name="everybody").click()
    expect(page.locator(".reader-now")).to_have_text("Reading for everybody")
    assert page_log.complaints == page_log.violations == []


def test_console_pages_say_that_bound_key_reads_for_its_user_too(
    page: Page, service: RunningService, demo: DemoMemory
) -> None:
    open_console(page, service, demo.bound, "#/people")
    wait_until_loaded(page)
    page.get_by_role("button", name="Change").click()
    page.get_by_label("Read for these participants").fill("agent:keel")
    page.get_by_label("Read for these participants").press("Enter")
    said = "Now reading for user:mara agent:keel on all screens: what all of them took part in."
    expect(page.locator("main > .notice")).to_have_text(said)


def test_console_pages_stay_where_was_asked_last(
    page: Page, service: RunningService, keys: Keys
) -> None:
    admin = keys.make("places", "read", "write", "admin")
    with Strandline(service.url, admin) as memory:
        buoy = {"participants": [MARA], "role": "user"}
        memory.add_batch([buoy | {"content": f"Buoy {n}."} for n in range(99)], atomic=True)
        scope_id = memory.add("Buoy 99.", participants=[MARA], speaker=MARA).scope_id
    open_console(page, service, admin, f"#/people?scope={scope_id}")
    wait_until_loaded(page)
    first, held = "**/events?*after_seq=0&*", list[Route]()
    page.route(first, lambda route: held.append(route))
    with page.expect_request(first):
        page.get_by_role("button", name="Oldest").click()
    with page.expect_response("**/events?*after_seq=40&*"):
        page.get_by_role("button", name="Newest").click()
    with page.expect_response(first) as late:
        held[0].continue_()
    late.value.finished()
    page.wait_for_timeout(500)
    position = page.locator(".conversation-tools [role=status]").inner_text()
    assert position == "event 100 of 100, the last"


def test_console_pages_say_that_key_expired(
    page: Page, service: RunningService, keys: Keys
) -> None:
    ends = datetime.now(UTC) + timedelta(seconds=5)
    key = keys.make("demo", "read", user=MARA, expires_at=ends)
    time.sleep((ends - datetime.now(UTC)).total_seconds() + 0.1)
    page.goto(f"{service.url}/console#key={key}")
    page.get_by_role("button", name="Use this key").click()
    expect(page.get_by_role("alert")).to_contain_text("The API key has expired.")
    expect(page.get_by_label("API key or token")).to_be_visible()


def test_console_pages_are_used_by_keyboard(
    page: Page, page_log: PageLog, service: RunningService, demo: DemoMemory
) -> None:
    open_console(page, service, demo.admin)
    wait_until_loaded(page)
    page.locator("body").press("g")
    page.locator("body").press("p")
    expect(page.locator("main h1")).to_be_focused()
    wait_until_loaded(page)
    page.get_by_role("list", name="Scopes").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(page.get_by_role("feed")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Recall debugger")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("r")
    expect(page.locator("main h1")).to_have_text("Recall debugger")
    page.keyboard.press("/")
    page.keyboard.type(QUESTION)
    page.keyboard.press("Control+Enter")
    expect(page.locator(".hit").first).to_contain_text("red pouch")
    assert page_log.complaints == page_log.violations == []
