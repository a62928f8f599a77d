"""What the tests in a real browser share: the browser, the service, and what pages complain of."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from strandline.config import get_settings
from strandline.local.runtime import RunningService, run_local_service

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WAIT_MS = 20_000


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium of this machine; the tests bring none."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    assert program, (
        f"no browser here: the page is opened in one of {', '.join(NAMES)}, found on PATH. "
        "Debian and Ubuntu: apt-get install chromium. macOS: brew install --cask chromium"
    )
    with sync_playwright() as playwright:
        # Root, as in a container, gets no sandbox; what is opened is the service's own page.
        connection = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield connection
        connection.close()


@pytest.fixture(scope="module", autouse=True)
def clean_settings() -> Iterator[None]:
    """No setting of the machine reaches a module; its service keeps its own for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("STRANDLINE_")]:
            patch.delenv(name)
        get_settings.cache_clear()
        yield
    get_settings.cache_clear()


@pytest.fixture(scope="module")
def service(clean_settings: None) -> Iterator[RunningService]:
    """The whole service on a port of its own."""
    # Not pytest's own directory: the database's account does not reach that.
    parent = Path(tempfile.mkdtemp(prefix="strandline-browser-"))
    parent.chmod(0o711)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("DATABASE_URL", "BUCKET", "WORK_QUEUE_URL", "STATE_MACHINE", "KEY_SECRET"):
            patch.setenv(f"STRANDLINE_{name}", "")  # whatever a start sets is taken back
        with run_local_service(parent / "data", 0) as started:
            yield started
    shutil.rmtree(parent)


@dataclass
class PageLog:
    """What pages asked for and complained of."""

    requests: list[str] = field(default_factory=list[str])
    complaints: list[str] = field(default_factory=list[str])
    violations: list[str] = field(default_factory=list[str])
    """What the page's Content-Security-Policy refused."""

    def list_foreign_requests(self, url: str) -> list[str]:
        """Requests to another origin than the service's."""
        return [u for u in self.requests if urlsplit(u).scheme != "data" and not u.startswith(url)]


def listen(target: Page | BrowserContext) -> PageLog:
    """Begin to listen, before a page is opened. An error, a warning, a script's failure, a dialog
    are complaints; what its Content-Security-Policy refused is a violation."""
    page_log = PageLog()
    hear_policy_violations(target, page_log.violations)
    target.on("request", lambda request: page_log.requests.append(request.url))
    target.on(
        "console",
        lambda message: (
            page_log.complaints.append(f"{message.type}: {message.text}")
            if message.type in ("error", "warning")
            else None
        ),
    )
    if isinstance(target, BrowserContext):
        target.on("weberror", lambda error: page_log.complaints.append(str(error.error)))
    else:
        target.on("pageerror", lambda error: page_log.complaints.append(str(error)))
    target.on("dialog", lambda dialog: page_log.complaints.append(f"dialog: {dialog.message}"))
    return page_log


def hear_policy_violations(target: Page | BrowserContext, heard: list[str]) -> None:
    """Put into a list each `securitypolicyviolation` of the pages that are opened from now on."""

    def hear(text: str) -> None:
        heard.append(text)

    context: Any = target  # of its functions' parameters nothing is known
    context.expose_function("tellViolation", hear)
    target.add_init_script(
        "addEventListener('securitypolicyviolation', (it) => "
        "window.tellViolation(`${it.effectiveDirective}: ${it.blockedURI} ${it.sample}`))"
    )
