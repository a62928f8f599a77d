"""A browser at the console of a running service: signs in, notes what it complains about, and has
axe look at the page."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import urlencode, urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from strandline.local.runtime import RunningService
from tests.browser.conftest import hear_policy_violations

WAIT_MS = 30_000
WIDTHS = (1440, 768, 390)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
AXE = "node_modules/axe-core/axe.min.js"
_GRAVE = """async (ofColours) => {
    const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
    const rules = ofColours
        ? {type: "rule", values: ["color-contrast", "link-in-text-block"]}
        : {type: "tag", values: tags};
    const found = await axe.run(document, {resultTypes: ["violations"], runOnly: rules});
    return found.violations.filter((it) => ["serious", "critical"].includes(it.impact))
        .map((it) => `${it.id}: ${it.nodes.map((node) => node.html).join(" | ").slice(0, 600)}`);
}"""
FOREIGN_ELEMENTS = (
    "main :is(img, iframe, object, embed, script, style, link, form[action], [style*=url], video)"
)


class ConsoleSession:
    """The console in one tab, signed in with one key."""

    def __init__(self, page: Page, service: RunningService, repository: Path) -> None:
        self.page, self.service, self._repository = page, service, repository
        self.complaints: list[str] = []
        self.violations: list[str] = []
        self.expected_statuses: set[int] = set()
        self._requests: list[str] = []
        hear_policy_violations(page, self.violations)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self._requests.append(request.url))

    def _hear(self, message: ConsoleMessage) -> None:
        is_expected = any(f"status of {it} " in message.text for it in self.expected_statuses)
        if message.type in ("error", "warning") and not is_expected:
            self.complaints.append(message.text)

    def sign_in(self, key: str) -> None:
        """Open the console, at no screen, and give the key by hand."""
        self.page.goto(f"{self.service.url}/console#/none")
        self.page.get_by_label("API key or token").fill(key)
        self.page.get_by_role("button", name="Open").click()
        self.page.locator("header.top").wait_for()

    def allow_changes(self) -> None:
        """Turn the one switch on."""
        self.page.locator(".account summary").click()
        self.page.get_by_role("switch").check()
        self.page.locator(".account summary").click()

    def go(self, screen: str, state: Mapping[str, str] | None = None) -> None:
        """Another address, and wait until nothing loads."""
        self.page.evaluate("it => { location.hash = it; }", f"#/{screen}?{urlencode(state or {})}")
        self.settle()

    def settle(self) -> None:
        """Wait until nothing loads: what is loaded may load something more."""
        for _ in range(3):
            self.page.wait_for_timeout(120)
            expect(self.page.locator("main .loading")).to_have_count(0)

    def confirm(self, action: str) -> str:
        """Read what a change says that it will do, and do it."""
        dialog = self.page.locator("dialog[open]")
        said = dialog.inner_text()
        dialog.get_by_role("button", name=action).click()
        return said

    def find_grave_faults(self, *, of_colours: bool = False) -> list[str]:
        """What axe finds serious or critical; `of_colours`: by the rules of colours alone."""
        if not self.page.evaluate("'axe' in window"):
            source = (self._repository / AXE).read_text()
            self.page.evaluate(f"() => {{ {source} }}")
        return self.page.evaluate(_GRAVE, of_colours)

    def resize(self, width: int) -> None:
        """Another width of the window; the height stays."""
        self.page.set_viewport_size({"width": width, "height": 950})

    def look(self, name: str) -> Iterator[str]:
        """What is wrong with the page as it stands, light and dark: what axe finds, and a page that
        is wider than its window. Of each a picture is put into the folder `build/console`."""
        page, folder = self.page, self._repository / "build/console"
        folder.mkdir(parents=True, exist_ok=True)
        width = page.evaluate("innerWidth")
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            place = f"{name}-{width}-{scheme}"
            # The other rules look at elements and words, which are the same in both.
            faults = self.find_grave_faults(of_colours=scheme == "dark")
            yield from (f"{place}: {it}" for it in faults)
            page.screenshot(path=folder / f"{place}.png")
        if page.evaluate("document.documentElement.scrollWidth > innerWidth + 1"):
            yield f"{name} is wider than {width}"
        page.emulate_media(color_scheme="light")

    def look_at_all_widths(self, name: str) -> list[str]:
        """The same at each width."""
        found = list[str]()
        for width in WIDTHS:
            self.resize(width)
            found += self.look(name)
        self.resize(WIDTHS[0])
        return found

    def check_quiet(self) -> None:
        """No complaint, nothing that the page's policy refused, no request to another origin."""
        assert not self.violations, self.violations
        foreign = [
            it
            for it in self._requests
            if urlsplit(it).scheme != "data" and not it.startswith(self.service.url)
        ]
        assert not foreign, foreign
        assert not self.complaints, self.complaints


@contextmanager
def open_console(
    browser: Browser,
    service: RunningService,
    repository: Path,
    key: str,
    *,
    changes: bool = False,
    scheme: Literal["light", "dark"] = "light",
) -> Generator[ConsoleSession]:
    """The console, signed in with a key; at the end it must not have complained."""
    context = browser.new_context(
        viewport={"width": 1440, "height": 950}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    expect.set_options(timeout=WAIT_MS)
    session = ConsoleSession(page, service, repository)
    session.sign_in(key)
    if changes:
        session.allow_changes()
    yield session
    session.check_quiet()
    context.close()
