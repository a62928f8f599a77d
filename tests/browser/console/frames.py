"""How quick the console is: when its first things are painted, and how long frames take while a
person scrolls and drags, by the browser's own trace."""

import itertools
import json
import statistics
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from playwright.sync_api import Browser, Locator, Page

_TICK = (
    "() => { const next = () => { if (!window.isStill) requestAnimationFrame(next); };"
    " window.isStill = false; next(); }"
)
"""Asks for every frame, so that one that comes late is seen, whether or not anything changed."""
_CONTENT = """selector => new Promise((resolve, reject) => {
    const look = () => {
        if (performance.now() > 60000) reject(new Error(`no ${selector} after a minute`));
        else if (!document.querySelector(selector)) requestAnimationFrame(look);
        else requestAnimationFrame(() => resolve(performance.now()));
    };
    look();
})"""
_JUMP = """async frame => {
    for (let step = 0; step <= 80; step += 1) {
        await new Promise(requestAnimationFrame);
        const share = step <= 60 ? step / 60 : (80 - step) / 20;
        frame.scrollTop = share * (frame.scrollHeight - frame.clientHeight);
    }
}"""
_PRESENTED = "AnimationFrame::Presentation"
"""The trace's mark of a frame that reached the screen."""


@dataclass
class Frames:
    """The frames of one action."""

    gaps: list[float]
    """Milliseconds from each to the next."""

    @property
    def p95(self) -> float:
        """What 95 of 100 frames took at most, in milliseconds."""
        return sorted(self.gaps)[int(0.95 * len(self.gaps))]

    def __str__(self) -> str:
        median = statistics.median(self.gaps)
        return f"{len(self.gaps)} frames, median {median:.1f} ms, p95 {self.p95:.1f} ms"


@contextmanager
def trace_frames(browser: Browser, page: Page) -> Generator[Frames]:
    """Trace what is done within; the frames are known after it."""
    frames = Frames([])
    browser.start_tracing(page=page, categories=["devtools.timeline"])
    page.evaluate(_TICK)
    try:
        yield frames
    finally:
        page.evaluate("() => { window.isStill = true; }")
        trace = cast("dict[str, list[dict[str, Any]]]", json.loads(browser.stop_tracing()))
    shown = [it for it in trace["traceEvents"] if it["name"] == _PRESENTED]
    process = statistics.mode(it["pid"] for it in shown)  # another tab has frames, too
    times = sorted(it["ts"] / 1000 for it in shown if it["pid"] == process)
    frames.gaps += [later - earlier for earlier, later in itertools.pairwise(times)]


def measure_paint(page: Page, selector: str) -> tuple[float, float]:
    """Load the page again, with the key that its tab keeps. Gives the milliseconds from then on to
    the first paint, and to the frame that shows the first thing of the screen."""
    page.reload()
    content = page.evaluate(_CONTENT, selector)
    paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    return page.evaluate(paint), content


def scroll(page: Page, place: Locator, steps: int, pixels: int) -> None:
    """Turn the wheel over a place."""
    place.hover()
    for _ in range(steps):
        page.mouse.wheel(0, pixels)
        page.wait_for_timeout(16)


def jump_as_dragged(place: Locator) -> None:
    """Move what a frame shows as a dragged scrollbar does: to its end in a second, and back."""
    place.evaluate(_JUMP)


def drag(page: Page, start: tuple[float, float], pixels: tuple[float, float]) -> None:
    """Drag what is at a place, in 40 steps."""
    x, y = start
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(1, 41):
        page.mouse.move(x + pixels[0] * step / 40, y + pixels[1] * step / 40)
        page.wait_for_timeout(16)
    page.mouse.up()
