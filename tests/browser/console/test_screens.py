"""Topics, graph, forgetting, and keys in a real browser: on the demo's data, on an empty tenant,
with hostile texts, and with the keys of different people."""

import base64
import itertools
import json
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from playwright.sync_api import Browser, Route, expect

from events.demo.tour import load_messages_of_conversation
from strandline import Strandline, operator_actions
from strandline.aws.payload_texts import decode_payload_text
from strandline.config import get_settings
from strandline.local.runtime import RunningService, run_local_service
from tests.browser.console.console_pages import HOSTILE_TEXTS, QUESTION, SECRET
from tests.browser.console.screen_sessions import (
    FOREIGN_ELEMENTS,
    WIDTHS,
    ConsoleSession,
    open_console,
)
from tests.browser.console.walks import (
    Places,
    Step,
    walk_empty_memory,
    walk_memory,
    walk_operations,
)

WHO = ["user:mara", "agent:keel"]
FACT = "Maria eats no fish"
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJg"
    "gg=="
)
"""A picture of one pixel."""
HOSTILE = (
    '<img src=x onerror="alert(1)">',
    "<script>alert(2)</script>",
    "</bdi></p><h1>A heading</h1>",
    "javascript:alert(3)",
    "[link](https://example.com) https://example.com",
    "\u202eeman desrever a",
    "zero\u200bwidth\u2066isolate",
    "'\"><style>*{display:none}</style>",
    "${7*7} {{7*7}} %00 &lt;b&gt;",
)


@dataclass
class FilledService:
    """A service with the demo's conversation in one tenant, and nothing in another."""

    running: RunningService
    browser: Browser
    repository: Path
    keys: dict[str, str]
    page_file: Path
    """A file that is a page with a script, to upload."""

    def call(self, method: str, path: str, body: Any = None, *, key: str = "admin") -> Any:
        """A call of the API. Raises AssertionError if it is refused."""
        headers = {"X-API-Key": self.keys[key]}
        url = f"{self.running.url}/api/v1/{path}"
        reply = httpx2.request(method, url, json=body, headers=headers, timeout=60)
        assert reply.is_success, f"{method} {path}: {reply.status_code} {reply.text}"
        return reply.json()

    def open(self, key: str = "admin", **options: Any) -> AbstractContextManager[ConsoleSession]:
        """The console with one of the keys."""
        return open_console(self.browser, self.running, self.repository, self.keys[key], **options)

    def state_nodes(self, *nodes: dict[str, Any], who: list[str] | None = None) -> list[str]:
        """State nodes of the graph; gives their ids."""
        who = who or WHO
        body = {"participants": who, "speaker": who[0], "nodes": nodes}
        return [it["id"] for it in self.call("POST", "graph/nodes", body)["nodes"]]


def wait_for_snapshot(service: FilledService, version: int) -> None:
    """Have the topics built until a snapshot is published. Raises AssertionError in the end."""
    until = time.monotonic() + 300
    while time.monotonic() < until:
        state = service.call("GET", "admin/topics")
        if state["active_version"] >= version:
            return
        if state["waiting_versions"] and not state["running_job_id"]:
            service.call("POST", "admin/jobs/builder")
        time.sleep(2)
    raise AssertionError("no snapshot was published")


@pytest.fixture(autouse=True)
def clean_settings() -> None:
    """All tests of this module share one service, which keeps its settings."""


@pytest.fixture(scope="module")
def filled(browser: Browser) -> Iterator[FilledService]:
    repository = Path(__file__).parents[3]
    parent = Path(tempfile.mkdtemp(prefix="strandline-screens-"))
    parent.chmod(0o711)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("DATABASE_URL", "BUCKET", "WORK_QUEUE_URL", "STATE_MACHINE", "KEY_SECRET"):
            patch.setenv(f"STRANDLINE_{name}", "")
        get_settings.cache_clear()
        with run_local_service(parent / "data", 0) as running:
            keys = {
                "admin": operator_actions.create_key(
                    "demo", rights=("read", "write", "erase", "admin")
                ),
                "reader": operator_actions.create_key("demo", user="user:mara", rights=("read",)),
                "operator": operator_actions.create_key("demo", rights=("operator",)),
                "eraser": operator_actions.create_key("demo", rights=("read", "erase")),
                "empty": operator_actions.create_key(
                    "empty", rights=("read", "write", "erase", "admin", "operator")
                ),
            }
            page_file = parent / "page.html"
            page_file.write_text("<h1>A page</h1><script>window.hurt = 1</script>")
            service = FilledService(running, browser, repository, keys, page_file)
            messages = list(load_messages_of_conversation())[:120]
            for half, version in ((messages[:60], 1), (messages[60:], 2)):
                for batch in itertools.batched(half, 20, strict=False):
                    service.call("POST", "events/batch", {"events": batch, "atomic": True})
                wait_for_snapshot(service, version)
            service.call("POST", "admin/jobs/promoter")
            yield service
    get_settings.cache_clear()
    shutil.rmtree(parent)


@pytest.fixture
def maria(filled: FilledService) -> str:
    """A fact about Maria, with the entity that it is about."""
    about = {"edge": "fact_entity", "target": "maria"}
    entity, fact = filled.state_nodes(
        {"type": "entity", "name": "Maria", "kind": "person", "ref": "maria"},
        {"type": "fact", "content": FACT, "category": "personal", "relationships": [about]},
    )
    assert entity.startswith("ent:")
    return fact


@pytest.fixture(scope="module")
def places(filled: FilledService) -> Places:
    """What the walk looks at; an event of the conversation was erased."""
    about = [{"edge": "fact_entity", "target": "mara"}]
    _, fact = filled.state_nodes(
        {"type": "entity", "name": "Mara", "kind": "person", "ref": "mara"},
        {"type": "fact", "content": "Mara sails on Sundays", "relationships": about},
    )
    with Strandline(filled.running.url, filled.keys["admin"]) as memory:
        secret = memory.add(SECRET, participants=WHO, speaker=WHO[0])
        memory.add("It goes into the drawer.", participants=WHO, speaker=WHO[0])
        memory.erase(event_ids=[secret.event_id])
        hits = memory.recall(QUESTION, participants=WHO).hits
        upload = memory.upload(filled.page_file, participants=WHO)
    return Places(
        scope_id=str(secret.scope_id),
        event_id=str(hits[0].event_id),
        upload_id=str(upload.event_id),
        fact_id=fact,
    )


def list_steps(places: Places, key: str) -> list[Step]:
    """The walk of a key of the service."""
    if key == "admin":
        return list(walk_memory(places))
    return list(walk_operations("demo") if key == "operator" else walk_empty_memory())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("key", ["admin", "operator", "empty"])
def test_screens_have_no_fault_at_any_size(
    filled: FilledService, places: Places, key: str, width: int
) -> None:
    with filled.open(key, changes=True) as session:
        session.resize(width)
        faults = list[str]()
        for step in list_steps(places, key):
            session.go(step.screen, step.state)
            expect(session.page.locator("main")).to_contain_text(step.words)
            faults += session.look(step.name)
    assert faults == []


def test_screens_planted_fault_is_noticed(filled: FilledService) -> None:
    with filled.open() as session:
        session.go("overview")
        assert session.find_grave_faults() == []
        session.page.evaluate(
            "() => document.querySelector('main').append(document.createElement('input'))"
        )
        (fault,) = session.find_grave_faults()
        assert fault.startswith("label: <input")
        session.page.evaluate("() => document.body.setAttribute('style', 'color: red')")
        session.settle()
        assert [it.partition(":")[0] for it in session.violations] == ["style-src-attr"]
        session.violations.clear()
        session.complaints.clear()


def test_screens_payload_is_saved_or_shown_as_text(filled: FilledService, places: Places) -> None:
    page_source = filled.page_file.read_bytes()
    picture = filled.page_file.with_name("pixel.png")
    picture.write_bytes(base64.b64decode(PIXEL))
    with Strandline(filled.running.url, filled.keys["admin"]) as memory:
        pixel = memory.upload(picture, participants=WHO, name="a\u202e/pixel.png")
    with filled.open() as session:
        page = session.page
        session.go("event", {"id": places.upload_id})
        page.get_by_role("button", name="Show page.html").click()
        shown = page.get_by_role("region", name="The payload's text")
        expect(shown).to_have_text(page_source.decode())
        assert shown.locator("h1, script").count() == 0
        with page.expect_download() as saved:
            page.get_by_role("button", name="Download page.html").click()
        assert saved.value.suggested_filename == "page.html"
        assert Path(saved.value.path()).read_bytes() == page_source
        session.go("people", {"scope": places.scope_id})
        row = page.locator("article", has=page.get_by_text("pixel.png"))
        row.get_by_role("button", name="Show").click()
        source = row.locator("img").get_attribute("src")
        assert source == f"data:image/png;base64,{PIXEL}"
        with page.expect_download() as saved:
            row.get_by_role("button", name="Download").click()
        assert saved.value.suggested_filename == "a[U+202E]_pixel.png"
        page.route("**/ipfs/**", lambda route: route.fulfill(body="other bytes"))
        session.go("event", {"id": str(pixel.event_id)})
        page.get_by_role("button", name="Show a").click()
        expect(page.get_by_text("The bytes do not hash to the CID")).to_be_visible()
        assert page.evaluate("window.hurt") is None


def test_screens_payload_text_is_in_its_character_set(
    filled: FilledService, tmp_path: Path
) -> None:
    """As the service itself reads it for its search."""
    greeting = "Grüße an Zoë aus dem Hafen"
    stored = [
        (greeting.encode(), "text/plain"),
        (greeting.encode("cp1252"), "text/plain"),
        (greeting.encode("cp1252"), "text/csv; charset=utf-8"),
        (greeting.encode("utf-16"), "text/plain"),
        ("Привет, Зоя".encode("koi8-r"), "text/plain; charset=koi8-r"),
        (greeting.encode(), "text/plain; charset=iso-8859-1"),
        ("こんにちは".encode("shift_jis"), 'text/plain; charset="shift_jis"'),
        (b"ab " * 40_000 + greeting.encode("cp1252"), "text/plain"),
        ("€".encode() * 22_000 + b"\xfc", "text/plain"),
        ("caf\ufffd au lait".encode(), "text/plain"),
    ]
    notes = list[str]()
    with Strandline(filled.running.url, filled.keys["admin"]) as memory:
        for data, mime_type in stored:
            (tmp_path / "note.txt").write_bytes(data)
            note = memory.upload(tmp_path / "note.txt", participants=WHO, mime_type=mime_type)
            notes.append(str(note.event_id))
    with filled.open() as session:
        for note_id, (data, mime_type) in zip(notes, stored, strict=True):
            session.go("event", {"id": note_id})
            session.page.get_by_role("button", name="Show note.txt").click()
            shown = session.page.get_by_role("region", name="The payload's text")
            expect(shown).to_be_visible()
            text = decode_payload_text(data, len(data), mime_type)
            assert shown.text_content() == text[:100_000], mime_type


def test_screens_snapshot_is_chosen_and_compared(filled: FilledService) -> None:
    with filled.open() as session:
        session.go("topics")
        page = session.page
        tree = page.get_by_role("tree")
        first = tree.get_by_role("treeitem").first
        first.focus()
        page.keyboard.press("ArrowRight")
        expect(first).to_have_attribute("aria-expanded", "true")
        expect(first.get_by_role("treeitem").first).to_be_visible()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        expect(page.get_by_label("The chosen topic")).to_contain_text("Its events")
        expect(page.get_by_label("The chosen topic").locator("blockquote").first).to_be_visible()
        assert "slot=" in page.url
        page.locator("select[name=version]").select_option("1")
        session.settle()
        assert "version=1" in page.url
        page.get_by_label("Compared with").select_option("2")
        session.settle()
        difference = filled.call("GET", "admin/snapshots/1/difference?from=2")
        expect(page.get_by_text(f"{difference['gone']} gone")).to_be_visible()
        rows = page.get_by_label("Differences").locator("tbody tr")
        expect(rows).to_have_count(min(len(difference["changes"]), 40))
        assert "not in view" not in rows.first.inner_text()


def test_screens_fact_is_corrected_and_taken_back(filled: FilledService, maria: str) -> None:
    with filled.open(changes=True) as session:
        page = session.page
        session.go("graph", {"node": maria})
        card = page.get_by_label("The chosen node")
        expect(card.locator("blockquote").first).to_contain_text(FACT)
        speaker = card.get_by_label("Stated by")
        assert speaker.input_value() == "", "nobody's words become another's by a default"
        card.get_by_label("What is so instead").fill("Maria eats fish on Fridays")
        card.get_by_label("Reason").fill("<b>She</b> said so")
        card.get_by_role("button", name="Correct …").click()
        expect(page.locator("dialog[open]")).to_have_count(0)
        speaker.select_option("agent:keel")
        card.get_by_role("button", name="Correct …").click()
        said = session.confirm("Correct it")
        assert "<b>She</b> said so" in said
        assert "Maria eats fish on Fridays" in said
        expect(card).to_contain_text("No longer so since")
        expect(card.locator(".notice.good")).to_contain_text("Corrected.")
        card.get_by_role("link", name="Maria eats fish on Fridays").first.click()
        expect(page.locator(".node-name")).to_have_text("Maria eats fish on Fridays")
        expect(card).to_contain_text("fact_entity")
        session.go("graph", {"node": maria})
        card.get_by_label("Reason").fill("A slip")
        speaker.select_option("agent:keel")
        card.get_by_role("button", name="Undo: it holds again …").click()
        said = session.confirm("State it again")
        assert "stated again from now on" in said
        expect(card.get_by_role("button", name="Correct …")).to_be_visible()
        expect(page.locator(".node-name")).to_have_text(FACT)
    facts = filled.call("GET", "graph/nodes?everybody=true&type=fact&limit=100")["nodes"]
    assert FACT in {it["name"] for it in facts}
    assert "Maria eats fish on Fridays" not in {it["name"] for it in facts}
    again = next(it for it in facts if it["name"] == FACT)
    body = {"node_id": again["id"], "traversal": "neighbours"}
    found = filled.call("POST", "graph/traverse?everybody=true", body)["nodes"]
    assert {it["name"] for it in found} >= {FACT, "Maria"}, "its edges come with it"
    with filled.open(changes=True) as session:
        card = session.page.get_by_label("The chosen node")
        session.go("graph", {"node": again["id"]})
        card.get_by_label("What stands here").select_option("never")
        card.get_by_label("Reason").fill("Nobody knows")
        card.get_by_label("Stated by").select_option("user:mara")
        card.get_by_role("button", name="End without another …").click()
        assert "was never so, because: Nobody knows" in session.confirm("End it")
        expect(card).to_contain_text("Never so: a later statement")
        session.go("graph", {"node": again["id"], "as_of": again["updated_at"]})
        expect(card.locator(".node-name")).to_have_text(FACT)
        expect(card).not_to_contain_text("Never so")
        session.go("graph", {"node": again["id"]})
        card.get_by_label("Reason").fill("It was right")
        card.get_by_label("Stated by").select_option("user:mara")
        card.get_by_role("button", name="Undo: it holds again …").click()
        session.confirm("State it again")
        expect(card.get_by_role("button", name="Correct …")).to_be_visible()
        expect(card).to_contain_text("fact_entity")
        card.get_by_label("What stands here").select_option("never")
        card.get_by_label("What is so instead").fill("Maria eats fish, not meat")
        card.get_by_label("Reason").fill("A mistake")
        card.get_by_label("Stated by").select_option("user:mara")
        card.get_by_role("button", name="Correct …").click()
        assert "so instead from the first" in session.confirm("Correct it")
        expect(card).to_contain_text("Never so: a later statement")


def test_screens_proposed_merge_is_accepted_or_refused(filled: FilledService) -> None:
    who = ["user:otto", "agent:keel"]
    filled.state_nodes(
        *({"type": "entity", "name": name} for name in ("Nils Berg", "Niels Berg", "Nils Bergh")),
        who=who,
    )
    with filled.open(changes=True) as session:
        page = session.page
        session.go("graph", {"view": "merges", "as": "user:otto"})
        cards = page.locator("main section.card")
        shown = cards.count()
        assert shown >= 2
        first = cards.first
        first.get_by_label("Stated by").select_option("user:otto")
        first.get_by_role("button", name="Refuse: two …").click()
        assert "are not the same" in session.confirm("Refuse")
        expect(first).to_contain_text("Refused: it is proposed no more.")
        session.go("graph", {"view": "contradictions", "as": "user:otto"})
        session.go("graph", {"view": "merges", "as": "user:otto"})
        expect(cards).to_have_count(shown - 1)
        cards.first.get_by_label("Stated by").select_option("user:otto")
        cards.first.get_by_role("button", name="Accept: the same …").click()
        session.confirm("Merge")
        expect(cards.first).to_contain_text("Merged.")
        cards.first.get_by_label("Stated by").select_option("user:otto")
        cards.first.get_by_role("button", name="Undo the merge …").click()
        session.confirm("Undo the merge")
        expect(cards.first).to_contain_text("The merge was undone.")


def test_screens_contradiction_shows_both_sides(filled: FilledService) -> None:
    who = ["user:ines", "agent:keel"]
    filled.state_nodes(
        {"type": "fact", "content": "Ines lives in Porto"},
        {"type": "fact", "content": "Ines does not live in Porto"},
        who=who,
    )
    until = time.monotonic() + 120
    path = "graph/conflicts?participants=user:ines"
    while not filled.call("POST", path, {})["conflicts"] and time.monotonic() < until:
        time.sleep(1)
    with filled.open(changes=True) as session:
        session.go("graph", {"view": "contradictions", "as": "user:ines"})
        sides = session.page.locator(".side")
        expect(sides).to_have_count(2)
        hint = session.page.locator(".card > .hint")
        expect(hint).to_have_text(re.compile("^If “Ines .* in Porto”, the newer one, holds, "))
        for i in range(2):
            expect(sides.nth(i).locator("blockquote")).to_contain_text("Porto")
        sides.first.get_by_label("Why this one is no longer so").fill("She moved")
        sides.first.get_by_label("Stated by").select_option("user:ines")
        sides.first.get_by_role("button", name="End this one …").click()
        session.confirm("End it")
        expect(session.page.get_by_text("No contradiction was found.")).to_be_visible()


def test_screens_conversation_is_forgotten_and_proved(filled: FilledService) -> None:
    secret = {"participants": WHO, "role": "user", "content": "4711", "session_id": HOSTILE[0]}
    event = filled.call("POST", "events", secret)
    with filled.open(changes=True) as session:
        page = session.page
        session.go("people", {"scope": event["scope_id"], "session": HOSTILE[0], "as": WHO[0]})
        page.locator(".conversation-head").get_by_role("link", name="Forget this session …").click()
        expect(page.get_by_label("What it would take")).to_contain_text("1 event, in 1 scope")
        expect(page.get_by_label("What it would take")).to_contain_text("Among")
        expect(page.get_by_label("What it would take")).not_to_contain_text("Payloads")
        assert filled.call("GET", f"events/{event['event_id']}?everybody=true")
        page.get_by_role("button", name="Forget 1 event …").click()
        assert HOSTILE[0] in session.confirm("Cancel")
        expect(page.get_by_label("What it would take")).to_contain_text(HOSTILE[0])
        page.get_by_role("button", name="Forget 1 event …").click()
        said = session.confirm("Forget 1 event")
        assert "It cannot be taken back." in said
        assert HOSTILE[0] in said
        expect(page.get_by_text("Unreadable since")).to_be_visible()
        expect(page.locator("main .pairs").first).to_contain_text(HOSTILE[0])
        session.go("forgetting", {"as": WHO[0]})
        newest = page.get_by_label("Erasures, newest first").get_by_role("link").first
        expect(newest).to_have_text("A conversation, 1 event")
        newest.click()
        expect(page.get_by_text("Verified: the receipt is whole.")).to_be_visible(timeout=240_000)
        session.expected_statuses |= {404, 410}
        page.get_by_role("button", name="Ask the service for the erased events").click()
        expect(page.get_by_text("The service gives none of 1 event any more.")).to_be_visible()
        assert session.look_at_all_widths("erasure") == []
        erasure_id = re.search(r"erasure=([0-9a-f-]+)", page.url)
        assert erasure_id
        prove_for_nobody(filled, erasure_id[1])
        erasure = filled.call("GET", f"erasures/{erasure_id[1]}")
        signed = {name: erasure[name] for name in ("receipt", "signature", "public_key")}
        for change, words in (
            ({}, "is the same, with the same signature and key"),
            ({}, "signed with this service's key, as the service gives it now"),
            ({"event_count": 2}, "Not verified: do not trust this receipt."),
            ({"event_count": 2}, "own receipt of this erasure says something else"),
        ):
            session.go("forgetting", {"verify": "1"})
            text = json.dumps({**signed, "receipt": {**signed["receipt"], **change}})
            page.get_by_label("Receipt, as JSON").fill(text)
            page.get_by_role("button", name="Verify").click()
            expect(page.locator("main")).to_contain_text(words)
        page.get_by_label("Receipt, as JSON").fill("no receipt")
        page.get_by_role("button", name="Verify").click()
        expect(page.get_by_role("alert")).to_contain_text("This is no receipt")


def test_screens_what_belongs_to_no_event_is_forgotten(filled: FilledService) -> None:
    """Of somebody who said nothing and put an upload that no event cites."""
    filled.keys["nora"] = operator_actions.create_key("demo", user="user:nora", rights=("write",))
    filled.call("POST", "uploads", {"size": 9, "sha256": "0" * 64}, key="nora")
    with filled.open(changes=True) as session:
        page = session.page
        preview = page.get_by_label("What it would take")
        session.go("forgetting", {"kind": "session", "session": "nowhere"})
        expect(preview).to_contain_text("Nothing is there to forget.")
        session.go("forgetting", {"kind": "participant", "who": WHO[0]})
        expect(preview).to_contain_text("What belongs to no event goes too")
        expect(preview.get_by_role("button", name=re.compile(r"Forget \d+ events"))).to_be_visible()
        session.go("forgetting", {"kind": "participant", "who": "user:nora"})
        expect(preview).to_contain_text("0 events")
        expect(preview).to_contain_text("What belongs to no event goes too")
        preview.get_by_role("button", name="Forget what belongs to no event …").click()
        said = session.confirm("Forget what belongs to no event")
        assert "uploads that no event cites" in said
        expect(page.get_by_text("Unreadable since")).to_be_visible()
    erasure = filled.call("GET", "erasures")["erasures"][0]
    assert (erasure["kind"], erasure["counts"]["uploads"]) == ("participant", 1)


def prove_for_nobody(filled: FilledService, erasure_id: str) -> None:
    """Ask for the erased events with a key that reads for nobody, which asks for whom."""
    with filled.open("eraser") as session:
        page = session.page
        session.go("forgetting", {"erasure": erasure_id})
        session.expected_statuses |= {404, 410}
        ask = page.get_by_role("button", name="Ask the service for the erased events")
        names = page.get_by_label("For whom to ask")
        names.fill("Mara")
        ask.click()
        message = names.evaluate("it => it.validationMessage")
        assert "user:mara" in message, message
        names.fill("user:mara")
        ask.click()
        expect(page.get_by_text("The service gives none of 1 event any more.")).to_be_visible()


def test_screens_key_is_made_rotated_and_revoked(filled: FilledService) -> None:
    with filled.open("operator", changes=True) as session:
        page = session.page
        session.go("operators")
        page.get_by_text("Make a tenant", exact=True).click()
        page.get_by_label("New tenant").fill("harbour")
        page.get_by_role("button", name="Make a tenant …").click()
        session.confirm("Make it")
        expect(page.get_by_text("This tenant has no key.")).to_be_visible()
        page.get_by_text("Make a key", exact=True).click()
        page.get_by_label("Label").fill(HOSTILE[1])
        page.get_by_role("button", name="Make a key …").click()
        assert "read, write" in session.confirm("Make it")
        token = page.locator(".notice.good code").inner_text()
        scopes = f"{filled.running.url}/api/v1/scopes?participants=user:a"
        assert httpx2.get(scopes, headers={"X-API-Key": token}).status_code == 200
        expect(page.get_by_label("Keys, newest first")).to_contain_text(HOSTILE[1])
        page.get_by_role("button", name="Rotate …").click()
        session.confirm("Rotate")
        expect(page.locator(".notice.good code")).not_to_have_text(token)
        rows = page.get_by_label("Keys, newest first").locator("tbody tr")
        expect(rows).to_have_count(2)
        rows.first.get_by_role("button", name="Revoke …").click()
        assert "It cannot be taken back" in session.confirm("Revoke")
        expect(rows.first).to_contain_text("revoked")
        session.go("operators", {"tenant": "harbour", "tab": "settings"})
        page.get_by_label("requests_per_minute").fill("77")
        limit = page.locator("tr", has=page.get_by_label("requests_per_minute"))
        limit.get_by_role("button", name="Change …").click()
        assert "77" in session.confirm("Change it")
        expect(page.get_by_text("Changed.")).to_be_visible()
    details = filled.call("GET", "admin/tenants/harbour", key="operator")
    assert details["limits"]["requests_per_minute"] == 77


def test_screens_show_each_key_what_it_may_read(filled: FilledService, maria: str) -> None:
    with filled.open("reader") as session:
        page = session.page
        menu = page.get_by_role("navigation", name="Screens")
        expect(menu.get_by_role("link", name="Keys, quotas, tenants")).to_have_count(0)
        session.go("topics")
        expect(page.locator("select[name=version]")).to_have_count(0)
        visible = filled.call("GET", "topics", key="reader")["topics"]
        expect(page.locator(".tree > [role=treeitem]")).to_have_count(len(visible))
        assert "user:mara" not in {str(it["participants"]) for it in visible}
        session.go("graph", {"node": maria})
        expect(page.get_by_text("needs a key with the right write")).to_be_visible()
        session.go("forgetting")
        expect(page.get_by_text("need a key with the right erase")).to_be_visible()
        session.go("operators")
        expect(page.get_by_text("names no screen that this key may open")).to_be_visible()
    with filled.open("operator") as session:
        for screen in ("topics", "graph", "forgetting"):
            session.go(screen)
            expect(
                session.page.get_by_text("names no screen that this key may open")
            ).to_be_visible()
        session.go("overview")  # asks for nothing that the key may not read
        session.go("operators", {"tenant": "demo"})
        expect(session.page.get_by_role("button", name="Revoke …")).to_have_count(0)
    with filled.open() as session:
        session.go("graph", {"node": maria})
        expect(session.page.get_by_text("changes are off").first).to_be_visible()
        expect(session.page.get_by_role("button", name="Correct …")).to_have_count(0)
        session.page.get_by_role("button", name="Allow changes").first.click()
        expect(session.page.get_by_role("button", name="Correct …")).to_be_visible()
        session.page.locator(".source blockquote a").first.click()
        session.page.get_by_role("link", name="Correct this fact").click()
        expect(session.page.locator(".node-name")).to_have_text(FACT)


def test_screens_show_hostile_names_as_text(filled: FilledService) -> None:
    who = ["user:" + HOSTILE[0].replace('"', ""), "agent:keel"]
    ids = filled.state_nodes(
        *({"type": "entity", "name": text, "description": text} for text in HOSTILE),
        {"type": "fact", "content": HOSTILE[6]},
        who=who,
    )
    with filled.open(changes=True) as session:
        for node, text in zip(ids, HOSTILE, strict=False):
            session.go("graph", {"as": who[0], "node": node})
            name = session.page.locator(".node-name")
            hidden = re.sub("[\u202e\u200b\u2066]", lambda it: f"U+{ord(it[0]):04X}", text)
            assert re.sub(r"\s", "", name.inner_text()) == re.sub(r"\s", "", hidden)
            assert session.page.locator(FOREIGN_ELEMENTS).count() == 0


FREE_TEXTS = {
    *("topic", "summary", "name", "content", "from_name", "into_name", "reason", "suggestion"),
    *("label", "subject", "issuer", "session_id", "description", "time_zone"),
    *("speaker", "participants", "speakers", "reads", "outcome", "message", "not_reached"),
}
"""What a caller or a model fills, by the names in answers."""


def make_hostile(value: Any, texts: Iterator[str], *, is_free: bool = False) -> Any:
    """The same answer, with a hostile text in each field that somebody fills."""
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [make_hostile(one, texts, is_free=is_free) for one in items]
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {
            name: make_hostile(one, texts, is_free=name in FREE_TEXTS)
            for name, one in fields.items()
        }
    return next(texts) if is_free and isinstance(value, str) else value


@pytest.mark.parametrize("key", ["admin", "operator"])
def test_screens_show_hostile_answers_as_text(
    filled: FilledService, places: Places, key: str
) -> None:
    texts = itertools.cycle((*HOSTILE, *HOSTILE_TEXTS))

    def answer(route: Route) -> None:
        reply = route.fetch()
        text = reply.text()
        if reply.headers.get("content-type", "").startswith("application/json") and text:
            text = json.dumps(make_hostile(json.loads(text), texts))
        route.fulfill(response=reply, body=text)

    shown = 0
    with filled.open(key, changes=True) as session:
        page = session.page
        page.route("**/api/v1/**", answer)
        session.expected_statuses.add(404)  # no session has the name that now stands in an answer
        for step in list_steps(places, key):
            session.go(step.screen, step.state)
            assert page.locator(FOREIGN_ELEMENTS).count() == 0, step.name
            assert page.locator("h1").count() == 1, step.name
            text = page.locator("main").inner_text()
            shown += sum(text.count(it) for it in ("window.hurt", "alert("))
            for item in page.get_by_role("treeitem").all()[:3]:
                item.locator(".tree-item").first.click()
                session.settle()
        page.unroute_all(behavior="ignoreErrors")
        assert page.evaluate("window.hurt") is None
    assert shown > 2
