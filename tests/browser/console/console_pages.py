"""A memory to look at in the console, keys of it, and how a page is opened."""

import json
import re
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Page, expect

from events.demo.tour import load_messages_of_conversation
from strandline import Strandline
from strandline.admin.keys import make_key
from strandline.db.database import Caller, Database
from strandline.local.runtime import RunningService, make_connection_file_path

MARA, KEEL = "user:mara", "agent:keel"
SECRET = "The code of the safe in the boat shed is 4711."
QUESTION = "Where does Mara keep her auto-injector?"
UNKNOWN = "Who was president of Mongolia?"


@dataclass(frozen=True)
class Keys:
    """Makes keys of a tenant of a running service."""

    service: RunningService

    def make(self, tenant: str, *rights: str, **more: Any) -> str:
        """A fresh key's token; a new tenant is created."""
        file = make_connection_file_path(self.service.directory)
        environment = json.loads(file.read_text())["environment"]
        with closing(Database(environment["STRANDLINE_DATABASE_URL"])) as database:
            access = database.connect_as(Caller(tenant, ()))
            secret = environment["STRANDLINE_KEY_SECRET"]
            return make_key(access, secret, rights=rights, **more).token


@dataclass(frozen=True)
class DemoMemory:
    """A tenant with the demo's conversation, a fact, a job that changed, and an erased event."""

    admin: str
    reader: str
    bound: str
    scope_id: str
    event_id: str
    """The event that says where the auto-injector is."""
    fact_id: str


def fill_demo_memory(service: RunningService, keys: Keys) -> DemoMemory:
    """Store the demo's conversation in the tenant `demo`, and wait for its vectors."""
    admin = keys.make("demo", "read", "write", "admin", "erase")
    with Strandline(service.url, admin) as memory:
        events = list(load_messages_of_conversation())
        for start in range(0, len(events), 50):
            memory.add_batch(events[start : start + 50], atomic=True)
        mara = {"type": "entity", "ref": "mara", "name": "Mara", "kind": "person"}
        about = [{"edge": "fact_entity", "target": "mara"}]
        fact = {"type": "fact", "content": "Mara's auto-injector is in the red pouch."}
        nodes = memory.graph.add(
            [mara, {**fact, "relationships": about}], participants=[MARA, KEEL], speaker=KEEL
        ).nodes
        for work in ("I work at Hansen Boats.", "I work at Nordic Sails now."):
            memory.add(work, participants=[MARA, KEEL], speaker=MARA)
        secret = memory.add(SECRET, participants=[MARA, KEEL], speaker=MARA)
        memory.add("It goes into the drawer, too.", participants=[MARA, KEEL], speaker=MARA)
        memory.erase(event_ids=[secret.event_id])
        while memory.recall(UNKNOWN, everybody=True).not_yet_embedded:
            time.sleep(0.5)
        best = memory.recall(QUESTION, participants=[MARA, KEEL]).hits[0]
    return DemoMemory(
        admin=admin,
        reader=keys.make("demo", "read"),
        bound=keys.make("demo", "read", user=MARA),
        scope_id=str(secret.scope_id),
        event_id=str(best.event_id),
        fact_id=next(node.id for node in nodes if node.type == "fact"),
    )


def open_console(page: Page, service: RunningService, key: str, address: str = "") -> None:
    """Open the console by a link with a key, and use the key."""
    mark = "&" if "?" in address else "?"
    fragment = f"{address}{mark}key={key}" if address else f"#key={key}"
    page.goto("about:blank")
    page.goto(f"{service.url}/console{fragment}")
    page.get_by_role("button", name="Use this key").click()
    expect(page.get_by_role("navigation")).to_be_visible()


def go(page: Page, name: str, **state: str) -> None:
    """Go to a screen, and wait until all of it is loaded."""
    query = "&".join(f"{key}={quote(value, safe='')}" for key, value in state.items())
    page.evaluate("to => { location.hash = to }", f"#/{name}?{query}")
    wait_until_loaded(page)


def wait_until_loaded(page: Page) -> None:
    """Wait until nothing says that it is loading."""
    expect(page.locator("main h1")).to_be_visible()
    page.wait_for_timeout(50)  # an address' change is heard in a task of its own
    expect(page.locator(".loading")).to_have_count(0)
    expect(page.get_by_text("Loading …", exact=True)).to_have_count(0)


# texts that try to be something else ----------------------------------------------------------

_SEEDS: Sequence[str] = (
    "<script>window.hurt = 1</script>",
    "<img src=x onerror='window.hurt = 1'>",
    "<svg onload=window.hurt=1>",
    '"><svg/onload=window.hurt=1>',
    "<iframe srcdoc='<script>parent.hurt=1</script>'></iframe>",
    "<style>body { display: none }</style>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<a href='javascript:window.hurt=1'>click</a>",
    "javascript:window.hurt=1",
    "[click](javascript:window.hurt=1)",
    "<base href='//evil.example/'>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "</textarea><script>window.hurt=1</script>",
    "<template><script>window.hurt=1</script></template>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=window.hurt=1>",
    "${window.hurt=1}{{window.hurt=1}}<%= window.hurt=1 %>",
    "&lt;script&gt;window.hurt=1&lt;/script&gt; &amp; &#x202e;",
    "safe\u202egnp.exe",
    "\u2066left\u2069 \u2067right\u2069 \u202aend",
    "\u05e9\u05dc\u05d5\u05dd user:alice \u0645\u0631\u062d\u0628\u0627",
    "zero\u200bwidth\u2060join\ufeff",
    "tags \U000e0068\U000e0069 hidden",
    "bell\x07 escape\x1b[31m red\x1b[0m delete\x7f",
    "line\u2028separator\u2029paragraph",
    "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324\u031e\u0349a\u034algo",
)
_FRAMES = ("{}", "x {} y", "{}\n{}", "\t{}")
HOSTILE_TEXTS = tuple(frame.format(seed, seed) for seed in _SEEDS for frame in _FRAMES)
"""A hundred texts: HTML, script, CSS, links, bidirectional marks and characters without a shape."""
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064"
    "\u2066-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def to_shown_text(text: str) -> str:
    """A text as the console shows it: hidden characters as their code points."""
    return HIDDEN.sub(lambda match: f"U+{ord(match[0]):04X}", text)


def make_hostile_event(n: int, text: str) -> dict[str, Any]:
    """An event that has a text in every field that a caller can fill with it."""
    line = re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", text).strip()
    name = f"user:{line.replace('@', ' ')[:80].strip()}"
    return {
        "participants": [name, "user:hostile"],
        "speaker": name,
        "role": "user",
        "content": text,
        "session_id": line[:100],
        "channel": line[:60],
        "source_event_key": f"{n} {line[:80]}",
        "metadata": {line[:60]: text, "list": [text]},
        "occurred_at": datetime.fromtimestamp(1_780_000_000 + n).astimezone().isoformat(),
    }
