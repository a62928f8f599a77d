"""`strandline console`: the browser gets the key, and no argument of a program holds it."""

import os
import webbrowser
from urllib.parse import quote, urlsplit

import httpx2
import pytest

from strandline.commands import console
from tests.strandline.client.conftest import HttpService, service
from tests.strandline.commands.command_line import Run, run

__all__ = ["run", "service"]


def test_console_command_hands_key_to_browser_once(
    run: Run, service: HttpService, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = os.environ["STRANDLINE_API_KEY"]
    opened: list[str] = []
    answers: list[tuple[int, str | None]] = []

    def browse(url: str) -> bool:
        opened.append(url)
        wrong = url.replace(urlsplit(url).path, "/other")
        for address in (wrong, url):
            reply = httpx2.get(address)
            answers.append((reply.status_code, reply.headers.get("Location")))
        return True

    monkeypatch.setattr(webbrowser, "open", browse)
    code, out, _ = run("console")
    page = f"{service.url}/console"
    assert (code, out.strip()) == (0, f"The console is open at {page}")
    assert answers == [(404, None), (302, f"{page}#key={quote(key, safe='')}")]
    assert key not in opened[0]
    assert key not in out
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(opened[0])


@pytest.mark.parametrize("says_it_opened", [False, True])
def test_console_command_without_browser_names_address(
    run: Run, service: HttpService, monkeypatch: pytest.MonkeyPatch, says_it_opened: bool
) -> None:
    def browse(url: str) -> bool:
        del url
        return says_it_opened

    monkeypatch.setattr(webbrowser, "open", browse)
    monkeypatch.setattr(console, "_SECONDS", 0.1)
    code, _, err = run("console")
    assert code == 1
    assert err.strip() == f"No browser opened it. Open {service.url}/console and enter the key."
