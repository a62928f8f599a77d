"""A large memory in the console: a conversation of 100,000 events, a graph of 5,000 nodes, and long
lists. Few of them are drawn, and any place is one step away. It prints how long the first paint and
the frames took, of each screen."""

import itertools
import os
from collections.abc import Iterator, Mapping

import httpx2
import psycopg
import pytest
from playwright.sync_api import Browser, Page, expect

from strandline import Strandline
from strandline.local.postgres import SUPERUSER
from strandline.local.runtime import RunningService
from tests.browser.conftest import WAIT_MS, listen
from tests.browser.console.console_pages import Keys, wait_until_loaded
from tests.browser.console.frames import (
    drag,
    jump_as_dragged,
    measure_paint,
    scroll,
    trace_frames,
)

EVENTS, MANY, NODES = 100_000, 20_000, 5_000
MAX_ROWS = 240
MAX_LIST_ROWS = 60
SCOPE = "0123abcd-0000-8000-8000-000000000001"
HUB = ("user:hub", "agent:keel")
FILL = (
    """
    insert into scopes (tenant_id, scope_id, participants, last_seq, folded_seq, last_recorded_at,
        created_at)
    values ('large', %(scope)s, array['agent:helper', 'user:large'], %(events)s, %(events)s, now(),
        now())
    """,
    """
    insert into events (tenant_id, event_id, scope_id, seq, participants, channel, role, type,
        origin, speaker, writer, content, metadata, recorded_at, cid)
    select 'large', md5('large' || i)::uuid, %(scope)s, i, array['agent:helper', 'user:large'],
        'http', 'user', 'message', 'user', 'user:large', '*',
        repeat('word' || i || ' and more of it. ', 1 + i %% 12), '{}',
        now() - make_interval(mins => %(events)s - i), 'cid-' || md5('large' || i)
    from generate_series(1, %(events)s) i
    """,
    """
    insert into scopes (tenant_id, scope_id, participants, created_at, last_recorded_at)
    select 'large', md5('scope' || i)::uuid, array['agent:helper', 'user:p' || i],
        now() - make_interval(mins => i), now() - make_interval(mins => i)
    from generate_series(1, %(many)s) i
    """,
    """
    insert into scope_members (tenant_id, participant, scope_id, participants)
    select tenant_id, unnest(participants), scope_id, participants
    from scopes where tenant_id = 'large'
    """,
    """
    insert into sessions (tenant_id, session_id, scope_id, participants, writer, created_at)
    select 'large', 'session ' || i, %(scope)s, array['agent:helper', 'user:large'], '*',
        now() - make_interval(mins => i)
    from generate_series(1, %(many)s) i
    """,
    """
    insert into erasures (tenant_id, erasure_id, participants, kind, target, asked_at, asked_by,
        hidden_at, cleared_at, completed_at, receipt, signature, counts)
    select 'large', md5('erasure' || i)::uuid, '{}', 'event', '{}', now(), '{}', now(), now(),
        now(), '{}', '', '{"events": 1}'
    from generate_series(1, %(many)s) i
    """,
    """
    insert into audit_log (tenant_id, audit_id, route, outcome)
    select 'large', md5('audit' || i)::uuid, 'GET /api/v1/admin/tenants', 'done'
    from generate_series(1, %(many)s) i
    """,
    "insert into tenants (tenant_id) select 'tenant-' || i from generate_series(1, 300) i",
    """
    insert into snapshots (tenant_id, version, snapshot_id, base_version, job_id, published_at,
        scope_count, leaf_count, node_count, event_count, scopes_changed, configuration)
    values ('large', 1, gen_random_uuid(), 0, gen_random_uuid(), now(), 500, 500, 500, 500, 500,
        '{"space": "none", "model": "none", "prompt": "none"}')
    """,
    "insert into active_snapshot (tenant_id, version) values ('large', 1)",
    """
    insert into topic_nodes (tenant_id, node_id, scope_id, participants, kind, content_hash,
        chain_id, chain_version, topic, summary, started_at, last_event_at, event_count, leaf_count,
        trust, space, vector_count, models)
    select tenant_id, md5('node' || scope_id)::uuid, scope_id, participants, 'leaf', '',
        md5('chain' || scope_id)::uuid, 1, 'Topic of ' || participants[2], 'A summary.', created_at,
        created_at, 4, 1, 'user', 'none', 0, '{}'
    from scopes where tenant_id = 'large' order by created_at desc limit 500
    """,
    """
    insert into snapshot_scopes (tenant_id, scope_id, participants, from_version, root_slot,
        root_id, cutoff, position, slots, space, leaf_count, node_count, event_count)
    select tenant_id, scope_id, participants, 1, chain_id, node_id, 4, 1, 0, 'none', 1, 1, 4
    from topic_nodes where tenant_id = 'large'
    """,
)


@pytest.fixture(scope="module")
def hub(service: RunningService, key: str) -> str:
    """The node that 4,999 others are joined to."""
    client = httpx2.Client(
        base_url=f"{service.url}/api/v1/", headers={"X-API-Key": key}, timeout=60
    )

    def state(*nodes: Mapping[str, object]) -> str:
        body = {"participants": HUB, "speaker": HUB[0], "nodes": nodes}
        reply = client.post("graph/nodes", json=body).raise_for_status()
        return reply.json()["nodes"][0]["id"]

    with client:
        middle = state({"type": "topic", "name": "The hub"})
        edges = [{"edge": "entity_topic", "target": middle}]
        for batch in itertools.batched(range(NODES - 1), 50, strict=False):
            state(*({"type": "entity", "name": f"Buoy {n}", "relationships": edges} for n in batch))
    return middle


@pytest.fixture(scope="module")
def key(service: RunningService) -> str:
    """A key with every right in a large tenant."""
    token = Keys(service).make("large", "read", "write", "admin", "erase", "operator")
    numbers = {"scope": SCOPE, "events": EVENTS, "many": MANY}
    with psycopg.connect(service.postgres.dsn("strandline", SUPERUSER)) as connection:
        for statement in FILL:
            connection.execute(statement, numbers)
        connection.execute("analyze")
    with Strandline(service.url, token) as memory:
        texts = [f"Barge {n} carries salt to the island." for n in range(120)]
        events = [{"participants": HUB, "role": "user", "content": text} for text in texts]
        for batch in itertools.batched(events, 40, strict=True):
            memory.add_batch(batch, atomic=True)
    return token


@pytest.fixture
def page(browser: Browser, service: RunningService, key: str) -> Iterator[Page]:
    """The console, whose tab keeps the key; at the end it must not have complained."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page_log = listen(context)
    page = context.new_page()
    expect.set_options(timeout=WAIT_MS)
    page.set_default_timeout(WAIT_MS)
    page.goto(f"{service.url}/console")
    page.get_by_label("API key or token").fill(key)
    page.get_by_label("Keep it in this tab").check()
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("navigation", name="Screens")).to_be_visible()
    yield page
    assert page_log.complaints == page_log.violations == []
    context.close()


def go(page: Page, address: str) -> None:
    page.evaluate("it => { location.hash = it; }", address)
    wait_until_loaded(page)


def show_screen(page: Page, address: str, selector: str) -> None:
    """Go there, and print how long it takes to load the page at this address."""
    go(page, address)
    paint, content = measure_paint(page, selector)
    busy = f"{os.getloadavg()[0]:.1f} processes on {os.cpu_count()} cores"
    print(f"\n{address}: first paint {paint:.0f} ms, content {content:.0f} ms; {busy}")
    wait_until_loaded(page)


def test_console_large_conversation_draws_few_rows(browser: Browser, page: Page) -> None:
    show_screen(page, f"#/people?scope={SCOPE}", ".feed article")
    articles, feed = page.locator(".feed article"), page.locator(".feed")
    place = page.locator(".conversation-tools [role=status]")
    expect(articles.last).to_contain_text(f"word{EVENTS} ")
    with trace_frames(browser, page) as scrolled:
        scroll(page, feed, 100, -600)
        scroll(page, feed, 40, 600)
    print(f"conversation, scrolled: {scrolled}")
    with trace_frames(browser, page) as dragged:
        for _ in range(3):
            jump_as_dragged(feed)
    print(f"conversation, dragged: {dragged}")
    assert MAX_ROWS / 2 < articles.count() <= MAX_ROWS
    slider = page.get_by_label("Place in the conversation")
    box = slider.bounding_box()
    assert box
    with trace_frames(browser, page) as slid:
        start = (box["x"] + box["width"] - 8, box["y"] + box["height"] / 2)
        drag(page, start, (8 - box["width"] / 2, 0))
        expect(place).to_contain_text("event 4" if slider.input_value() < "5" else "event 5")
    print(f"conversation, its slider dragged: {slid}")
    slider.fill(str(EVENTS // 2))
    expect(place).to_have_text(f"event {EVENTS // 2:,} of {EVENTS:,}")
    assert articles.count() <= MAX_ROWS
    page.get_by_role("button", name="Oldest").click()
    expect(articles.first).to_contain_text("word1 ")


@pytest.mark.parametrize(
    ("address", "label"),
    [
        ("#/people?tab=scopes", "Scopes"),
        ("#/people?tab=sessions", "Sessions"),
        ("#/people?tab=people", "People"),
        ("#/forgetting?kind=session", "Conversations"),
        ("#/forgetting?kind=scope", "Scopes"),
        ("#/forgetting", "Erasures, newest first"),
        ("#/operators", "Tenants, by name"),
        ("#/operators?tenant=large&tab=audit", "Audit trail, newest first"),
    ],
)
def test_console_large_list_draws_few_rows(
    browser: Browser, page: Page, address: str, label: str
) -> None:
    frame = page.locator(f".virtual-list[aria-label='{label}']")
    show_screen(page, address, f".virtual-list[aria-label='{label}'] .virtual-row")
    with trace_frames(browser, page) as scrolled:
        scroll(page, frame, 60, 600)
    with trace_frames(browser, page) as dragged:
        jump_as_dragged(frame)
        jump_as_dragged(frame)
    print(f"{label}, scrolled: {scrolled}; dragged: {dragged}")
    assert 0 < frame.locator(".virtual-row").count() <= MAX_LIST_ROWS
    frame.focus()
    page.keyboard.press("End")
    expect(frame.locator(":focus")).to_have_count(1)


@pytest.mark.parametrize(
    ("address", "selector"),
    [
        ("#/overview", "svg.plot .bar"),
        (f"#/recall?as={HUB[0]}&q=Which%20barge%20carries%20salt&limit=100&min=0", ".hit"),
        ("#/topics", "[role=treeitem]"),
    ],
)
def test_console_large_screen_scrolls(
    browser: Browser, page: Page, address: str, selector: str
) -> None:
    show_screen(page, address, selector)
    if "topics" in address:
        for shown in range(100, 501, 50):
            page.get_by_role("button", name="More conversations").click()
            expect(page.get_by_role("treeitem")).to_have_count(shown)
    with trace_frames(browser, page) as scrolled:
        scroll(page, page.locator("main"), 60, 400)
        scroll(page, page.locator("main"), 30, -400)
    with trace_frames(browser, page) as dragged:
        jump_as_dragged(page.locator("html"))
    print(f"{page.title()}, scrolled: {scrolled}; dragged: {dragged}")


def test_console_large_graph_draws_300_nodes(browser: Browser, page: Page, hub: str) -> None:
    address = f"#/graph?as={HUB[0]}&node={hub}"
    show_screen(page, address, "svg.graph .node")
    expect(page.locator("svg.graph .node")).to_have_count(300)
    counts = page.locator(".counts")
    expect(counts).to_contain_text("Drawn: 300 nodes")
    expect(counts).to_contain_text("Not drawn: at least 201 more")
    expect(counts).to_contain_text("In view are 5,000 nodes")
    box = page.locator("svg.graph").bounding_box()
    assert box
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    with trace_frames(browser, page) as dragged:
        drag(page, middle, (120, 80))
        drag(page, (box["x"] + 20, box["y"] + 20), (160, 120))
    print(f"graph, a node and the ground dragged: {dragged}")
    found = page.get_by_label("The 501 nodes that were found")
    listed = page.locator(".virtual-list[aria-label^='All nodes in view']")
    with trace_frames(browser, page) as scrolled:
        scroll(page, found, 30, 600)
        scroll(page, listed, 60, 600)
        jump_as_dragged(found)
        jump_as_dragged(listed)
    print(f"graph, its lists scrolled and dragged: {scrolled}")
    found.focus()
    page.keyboard.press("End")
    expect(found.get_by_text("1 step, not drawn").last).to_be_visible()
    page.get_by_label("Find a node").fill("Buoy 4998")
    page.get_by_role("button", name="Find").click()
    page.locator(".search-results").get_by_role("link", name="Buoy 4998").click()
    expect(page.locator(".node-name")).to_have_text("Buoy 4998")
