"""A conversation of 100,000 events in the console: few rows are drawn, and any place is one step
away. It prints how long the first paint and the frames took."""

import statistics
from urllib.parse import quote

import psycopg
from playwright.sync_api import Browser, Page, expect

from strandline.local.postgres import SUPERUSER
from strandline.local.runtime import RunningService
from tests.browser.conftest import WAIT_MS, listen
from tests.browser.console.console_pages import Keys, open_console

EVENTS = 100_000
MAX_ROWS = 240
SCOPE = "0123abcd-0000-8000-8000-000000000001"
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
)


def fill_large_scope(service: RunningService) -> None:
    with psycopg.connect(service.postgres.dsn("strandline", SUPERUSER)) as connection:
        for statement in FILL:
            connection.execute(statement, {"scope": SCOPE, "events": EVENTS})


def scroll(page: Page, steps: int, pixels: int) -> None:
    for _ in range(steps):
        page.mouse.wheel(0, pixels)
        page.wait_for_timeout(16)


def test_console_large_conversation_draws_few_rows(
    browser: Browser, service: RunningService
) -> None:
    key = Keys(service).make("large", "read", "admin")
    fill_large_scope(service)
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    expect.set_options(timeout=WAIT_MS)
    page_log = listen(context)
    open_console(page, service, key, f"#/people?scope={quote(SCOPE)}")
    articles, place = (
        page.locator(".feed article"),
        page.locator(".conversation-tools [role=status]"),
    )
    expect(articles.last).to_contain_text(f"word{EVENTS} ")
    paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    print(f"first paint {page.evaluate(paint):.0f} ms")
    page.evaluate(
        "() => { window.gaps = []; let last = performance.now(); const next = now => {"
        " window.gaps.push(now - last); last = now; requestAnimationFrame(next); };"
        " requestAnimationFrame(next); }"
    )
    page.locator(".feed").hover()
    scroll(page, 150, -600)
    scroll(page, 50, 600)
    gaps: list[float] = sorted(page.evaluate("window.gaps"))
    p95 = gaps[int(0.95 * len(gaps))]
    print(f"{len(gaps)} frames: median {statistics.median(gaps):.1f} ms, p95 {p95:.1f} ms")
    assert MAX_ROWS / 2 < articles.count() <= MAX_ROWS
    page.get_by_label("Place in the conversation").fill(str(EVENTS // 2))
    expect(place).to_have_text(f"event {EVENTS // 2:,} of {EVENTS:,}")
    assert articles.count() <= MAX_ROWS
    page.get_by_role("button", name="Oldest").click()
    expect(articles.first).to_contain_text("word1 ")
    assert page_log.complaints == page_log.violations == []
    context.close()
