"""The page at /docs in a real browser: it works without the internet, and makes a call."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Response, Route, expect

from strandline.local.runtime import RunningService
from tests.browser.conftest import WAIT_MS, listen

EVENT = {
    "participants": ["user:alice", "agent:helper"],
    "role": "user",
    "content": "The buoy goes out on Friday.",
}


@pytest.mark.parametrize("base_path", ["", "/memory"], ids=["at the root", "under a base path"])
def test_docs_page_call_is_answered(
    base_path: str, browser: Browser, service: RunningService, repository: Path
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.set_default_timeout(WAIT_MS)
    expect.set_options(timeout=WAIT_MS)
    page_log = listen(page)

    response = page.request.post(
        f"{service.url}/api/v1/events", data=EVENT, headers={"X-API-Key": service.key}
    )
    assert response.status == 201
    if base_path:  # as a custom domain's mapping or a stage does it
        page.route(
            f"**{base_path}/**",
            lambda route: route.continue_(url=strip_base_path(route, base_path)),
        )
    # The root leads there; a rewritten request's redirect goes by the rewritten address.
    page.goto(f"{service.url}{base_path}/docs" if base_path else f"{service.url}/")
    assert page.url == f"{service.url}{base_path}/docs"
    expect(page.locator("h1, .title").first).to_contain_text("Strandline")
    shots = repository / "build"
    page.screenshot(path=shots / "docs-top.png")
    authorize(page, service.key)
    answer = recall(page)
    page.screenshot(path=shots / "docs.png")

    assert answer.status == 200
    expect(page.locator(".request-url .microlight")).to_have_text(
        f"{service.url}{base_path}/api/v1/recall?everybody=false"
    )
    assert [hit["text"] for hit in answer.json()["hits"]] == [EVENT["content"]]
    expect(page.locator(".live-responses-table .response .response-col_status")).to_have_text("200")
    assert page_log.list_foreign_requests(service.url) == []
    assert len(page_log.requests) >= 6, "page, styles, scripts, document, call"
    assert page_log.complaints == page_log.violations == []
    storage = page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]")
    assert storage == [0, 0, ""], "the key is in this tab's memory alone"
    page.reload()
    expect(page.locator(".auth-wrapper .authorize.unlocked")).to_be_visible()


def strip_base_path(route: Route, base_path: str) -> str:
    return route.request.url.replace(f"{base_path}/", "/", 1)


def authorize(page: Page, key: str) -> None:
    page.get_by_role("button", name="Authorize").first.click()
    page.locator(".auth-container input").first.fill(key)
    page.locator(".auth-btn-wrapper .authorize").first.click()
    page.locator(".auth-btn-wrapper .btn-done").first.click()


def recall(page: Page) -> Response:
    """Open recall, try it with the example as it stands, and give its answer."""
    operation = page.locator("#operations-recall-post_recall")
    operation.locator(".opblock-summary-control").click()
    operation.locator(".responses-table .response[data-code='504']").wait_for()
    assert operation.evaluate("it => it.getBoundingClientRect().height") < 2000
    operation.get_by_role("button", name="Try it out").click()
    with page.expect_response("**/api/v1/recall*") as message:
        operation.get_by_role("button", name="Execute").click()
    operation.locator(".live-responses-table").wait_for()
    operation.locator(".live-responses-table").scroll_into_view_if_needed()
    return message.value
