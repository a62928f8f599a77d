"""What hooks do where something is wrong: they end with 0, keep what was said, and say it once."""

import contextlib
import json
import os
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from strandline import Strandline
from strandline.adapters.coding_agents import delivery
from strandline.adapters.coding_agents.spool import Spool
from tests.strandline.adapters.coding_agents.hook_calls import (
    COMMAND,
    NOBODY,
    HookCaller,
    list_stored_texts,
)
from tests.strandline.adapters.coding_agents.transcript_lines import ClaudeTranscript
from tests.strandline.adapters.conftest import Service, Users


class Forwarding(BaseHTTPRequestHandler):
    """A way to the service at `target`."""

    target = ""

    def do_POST(self) -> None:
        """Ask the service, and give its answer."""
        content = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name: self.headers[name] for name in ("Content-Type", "X-API-Key")}
        request = urllib.request.Request(f"{self.target}{self.path}", content, headers)  # noqa: S310
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            body = answer.read()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class Silent(Forwarding):
    """A service that takes a request and does not answer it."""

    def do_POST(self) -> None:
        """Wait for longer than a hook does."""
        time.sleep(3)


@contextlib.contextmanager
def serve(handler: type[BaseHTTPRequestHandler], port: int = 0) -> Generator[str]:
    """A server on this machine, and its address."""
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def use_service(caller: HookCaller, url: str, key: str) -> None:
    """Name another service, or another key."""
    caller.variables |= {"STRANDLINE_URL": url, "STRANDLINE_API_KEY": key}


def test_hook_keeps_messages_while_service_is_away(
    service: Service,
    client: Strandline,
    users: Users,
    session: ClaudeTranscript,
    tmp_path: Path,
) -> None:
    """The address is the same before and after: a port at which nobody listens, and then a way to
    the service."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    caller = HookCaller(tmp_path, users.alice, STRANDLINE_URL=f"http://127.0.0.1:{port}")
    says = caller.call("SessionStart", session, source="startup")["systemMessage"]
    assert "127.0.0.1 cannot be reached" in says
    assert says.endswith("What is said is kept on disk and stored later.")
    assert caller.call("UserPromptSubmit", session, prompt="When?") == {}
    caller.call("Stop", session)
    caller.wait_for_delivery()
    caller.wait_for_texts_on_disk(session.said)
    caller.assert_files_are_private()
    assert list_stored_texts(client, users.alice) == []

    session.ask("And the report?")
    with serve(type("Way", (Forwarding,), {"target": service.url}), port):
        caller.call("Stop", session)
        caller.wait_for_delivery()
        assert caller.flush()["stored"] == 3
    assert list_stored_texts(client, users.alice) == session.said


def test_hook_says_that_key_is_refused_and_keeps_messages(
    service: Service,
    client: Strandline,
    users: Users,
    session: ClaudeTranscript,
    tmp_path: Path,
) -> None:
    caller = HookCaller(tmp_path, users.alice, STRANDLINE_API_KEY="strandline_wrong")
    caller.call("Stop", session)
    caller.wait_for_delivery()
    caller.wait_for_texts_on_disk(session.said)
    says = caller.call("SessionStart", session, source="resume")["systemMessage"]
    assert "wait on disk" in says
    assert "The API key is not one of this deployment." in says
    assert "strandline_wrong" not in says
    assert caller.call("UserPromptSubmit", session, prompt="When?") == {}

    wrong = caller.folder
    use_service(caller, service.url, service.key)
    caller.call("Stop", session)
    caller.flush()
    assert list_stored_texts(client, users.alice) == session.said, "read again under the new key"
    assert len(list((wrong / "segments").iterdir())) == 1, "what waits under a key stays under it"


def test_hook_keeps_messages_of_user_whom_key_may_not_name(
    service: Service, users: Users, session: ClaudeTranscript, tmp_path: Path
) -> None:
    """403 for each event: the key is bound to another user."""
    caller = HookCaller(tmp_path, users.alice, STRANDLINE_API_KEY=service.key_of_ann)
    caller.call("Stop", session)
    caller.wait_for_delivery()
    report = caller.flush(expected_code=1)
    assert report["waiting"] == len(session.said)
    assert report["problem"].startswith("Messages wait on disk: ")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"STRANDLINE_USER": ""}, "Set STRANDLINE_USER"),
        ({"STRANDLINE_URL": ""}, "set STRANDLINE_URL"),
        ({"STRANDLINE_URL": "memory.example"}, "url: give the service's address"),
        ({"STRANDLINE_HOOK_CONNECT": "soon"}, "STRANDLINE_HOOK_CONNECT: give seconds"),
        ({"STRANDLINE_API_KEY": "a\nb"}, "key: has a sign that no credential has"),
        ({"STRANDLINE_HOOK_FOLDER": "/dev/null/x"}, "Not a directory"),
    ],
)
def test_hook_says_what_setting_is_wrong(
    settings: dict[str, str],
    says: str,
    users: Users,
    session: ClaudeTranscript,
    tmp_path: Path,
) -> None:
    caller = HookCaller(tmp_path, users.alice, **settings)
    answer = caller.call("SessionStart", session, source="startup")
    assert says in answer["systemMessage"]
    assert set(answer) == {"systemMessage"}
    for event in ("UserPromptSubmit", "Stop", "PreCompact"):
        assert caller.call(event, session, prompt="When?") == {}


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"hook_event_name": 1}', '{"hook_event_name": "Setup"}']
)
def test_hook_ends_well_whatever_it_is_sent(content: str, users: Users, tmp_path: Path) -> None:
    caller = HookCaller(tmp_path, users.alice)
    done = subprocess.run(
        COMMAND, env=caller.variables, input=content, text=True, capture_output=True, check=True
    )
    assert done.stderr == ""
    assert not done.stdout or set(json.loads(done.stdout)) == {"systemMessage"}


def test_hook_does_not_wait_for_silent_service(
    users: Users, session: ClaudeTranscript, tmp_path: Path
) -> None:
    """The first prompt waits for its limit, those after it do not ask for a while."""
    with serve(Silent) as url:
        caller = HookCaller(tmp_path, users.alice, STRANDLINE_URL=url)
        assert caller.call("UserPromptSubmit", session, prompt="When?") == {}
        assert Spool(str(caller.folder)).is_service_away
    start = time.monotonic()
    assert caller.call("UserPromptSubmit", session, prompt="When?") == {}
    print(f"a prompt after it: {time.monotonic() - start:.2f} s")


def test_hook_spool_drops_oldest_and_counts(
    users: Users,
    session: ClaudeTranscript,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caller = HookCaller(tmp_path, users.alice, STRANDLINE_URL=NOBODY)
    caller.call("Stop", session)
    caller.wait_for_delivery()
    spool = Spool(str(caller.folder))
    (first,) = spool.list_segments()
    spool.add_segment([{"participants": [], "content": "later", "source_event_key": "k"}])
    size = sum(os.stat(path).st_size for path in spool.list_segments())
    monkeypatch.setattr(delivery, "MAX_SPOOL_BYTES", size)
    delivery.drop_oldest_segments_over_limits(spool)
    assert len(spool.list_segments()) == 2
    monkeypatch.setattr(delivery, "MAX_SPOOL_BYTES", size - 1)
    delivery.drop_oldest_segments_over_limits(spool)
    assert first not in spool.list_segments()
    caller.wait_for_texts_on_disk(["later"])
    assert spool.read_report()["dropped"] == len(session.said)

    (rest,) = spool.list_segments()
    old = time.time() - delivery.MAX_SPOOL_SECONDS - 60
    os.utime(rest, (old, old))
    delivery.drop_oldest_segments_over_limits(spool)
    assert spool.list_segments() == []
    says = caller.call("SessionStart", session, source="resume")["systemMessage"]
    assert f"{len(session.said) + 1} messages waited too long and were dropped." in says
    assert delivery.MAX_SPOOL_SECONDS == 7 * 24 * 3600


def test_hook_scrubs_before_it_writes_or_asks(
    client: Strandline, users: Users, tmp_path: Path
) -> None:
    secret = "ghp_" + "aB3dE5gH" * 5
    session = ClaudeTranscript(tmp_path / "one.jsonl")
    session.ask(f"Use the token {secret} to push.")
    caller = HookCaller(tmp_path, users.alice, STRANDLINE_URL=NOBODY)
    caller.call("UserPromptSubmit", session, prompt=session.said[0])
    caller.call("Stop", session)
    caller.wait_for_delivery()
    for path in caller.folder.rglob("*"):
        assert path.is_dir() or secret not in path.read_text(), path
    caller.wait_for_texts_on_disk(["Use the token [scrubbed: github-token] to push."])
    assert Spool(str(caller.folder)).read_report()["scrubbed"] == {"github-token": 1}
    use_service(caller, os.environ["STRANDLINE_URL"], os.environ["STRANDLINE_API_KEY"])
    caller.call("Stop", session)
    caller.flush()
    (event,) = client.get_all(user=users.alice)
    assert event.metadata == {"scrubbed": {"github-token": 1}}
    assert secret not in str(event.content)
