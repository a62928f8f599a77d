"""`make demo`: fills a tenant of its own with a conversation, and shows what a memory is good for:
answers that cite, who sees what, a fact that ends, a text for a prompt, and forgetting."""

import json
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from events.demo.service import DemoServiceAndTenant, connect_with_new_tenant
from strandline import ServiceError, Strandline
from strandline.client.errors import GoneError, NotFoundError

type People = Sequence[str]

MARA, TOMAS, KEEL = "user:mara", "user:tomas", "agent:keel"
ALL: People = (MARA, TOMAS, KEEL)
MARA_AND_KEEL: People = (MARA, KEEL)


class DemoQuestion(NamedTuple):
    """A question, and on whose behalf it is asked."""

    people: People
    text: str
    hit_count: int = 1
    """How many hits; the second is the value that the first replaced."""


PRIVATE = DemoQuestion(MARA_AND_KEEL, "What did the clockmaker charge for the barometer?")
"""One of those below. Tomas asks it, too, and was not there when Mara spoke of it."""
CHANGED = DemoQuestion(MARA_AND_KEEL, "Where does Mara keep her auto-injector now?", hit_count=2)
QUESTIONS = (
    DemoQuestion(ALL, "How high was the tallest single wave at Auk in the storm?"),
    DemoQuestion(ALL, "Where was the buoy Cod found, and by whom?"),
    DemoQuestion((MARA, TOMAS), "When can Petra begin work?"),
    PRIVATE,
    CHANGED,
)
FORMER_FACT = "Mara's auto-injector is in the blue drybag."
FACT = "Mara's auto-injector is in the red pouch."
REASON = "She has a new one, and keeps it there."
SECRET = "The code of the safe in the boat shed is 4711."  # noqa: S105 -- nobody's safe
CONTEXT_TOKENS = 300

_BATCH = 20
_MIN_RELEVANCE = 0.2
"""What answers a question of these scores more, before it has a vector, too."""
_VECTOR_SECONDS = 120
_WIDTH, _INDENT = 92, "   "


def load_messages_of_conversation() -> Iterator[dict[str, Any]]:
    """The conversation's messages, without its files."""
    lines = (Path(__file__).parent / "conversation.jsonl").read_text("utf-8").splitlines()
    for event in map(json.loads, lines):
        if "content_file" not in event:
            yield {name: value for name, value in event.items() if name != "cites"}


def main() -> int:
    """Show it all. Returns 1 if the service refuses a call. Raises SystemExit, with a sentence, if
    it shows what it has to hide."""
    try:
        with connect_with_new_tenant() as (memory, place):
            print(f"Strandline at {place.url}; the demo has a new tenant, {place.tenant}.")
            _store_conversation(memory)
            answers = _ask_questions(memory)
            _ask_as_stranger(memory, answers[PRIVATE])
            _state_fact_and_its_end(memory)
            _print_context_text(memory)
            erasure_id = _store_and_erase_secret(memory)
            _print_next_steps(place, erasure_id)
    except ServiceError as error:
        print(f"\nstrandline: {error}", file=sys.stderr)
        return 1
    return 0


def _store_conversation(memory: Strandline) -> None:
    """Append the conversation, with a dot for each batch."""
    events = list(load_messages_of_conversation())
    sessions = len({event["session_id"] for event in events})
    _print_title("1. A memory fills")
    _print_wrapped(
        "In autumn 2026 Mara and Tomas put six wave buoys to sea: Auk, Brill, Cod, Dab, Eider and "
        f"Fulmar. Keel is their AI agent. There are {len(events)} messages in {sessions} "
        "conversations; some are among all three, some between two of them."
    )
    print(f"{_INDENT}storing ", end="", flush=True)
    for start in range(0, len(events), _BATCH):
        memory.add_batch(events[start : start + _BATCH], atomic=True)
        print(".", end="", flush=True)
    print(" done")
    _print_wrapped(
        "All can be found from now on: by their words at once, by their meaning as soon as the "
        "service has computed their vectors, in the background."
    )
    _wait_for_vectors(memory)


def _wait_for_vectors(memory: Strandline) -> None:
    """Wait, for two minutes at most, until the service has computed all vectors: what answers a
    question best may come second while only the other has one."""
    print(f"{_INDENT}computing vectors ", end="", flush=True)
    end = time.monotonic() + _VECTOR_SECONDS
    while memory.recall(QUESTIONS[0].text, participants=[MARA], limit=1).not_yet_embedded:
        if time.monotonic() > end:
            print(" goes on")
            return
        print(".", end="", flush=True)
        time.sleep(1)
    print(" done")


def _ask_questions(memory: Strandline) -> Mapping[DemoQuestion, UUID]:
    """Print each question and its best answer, and what that replaced. Returns the first hits."""
    _print_title("2. It answers with what somebody said, and cites it")
    first_hits: dict[DemoQuestion, UUID] = {}
    for question in QUESTIONS:
        print(f"\n{_INDENT}{_join_participant_names(question.people)} ask: {question.text}")
        hits = memory.recall(
            question.text, participants=question.people, limit=question.hit_count
        ).hits
        _exit_unless(len(hits) == question.hit_count, "Recall does not find what answers this.")
        for hit, label in zip(hits, ("", "Before that: "), strict=False):
            speaker = _format_participant_name(hit.speaker or "a tool")
            _print_wrapped(f'{label}"{hit.text}"', indent=2)
            print(f"{_INDENT * 2}[{speaker}, {_format_time(hit.occurred_at)}, {hit.event_id}]")
        first_hits[question] = hits[0].event_id
    return first_hits


def _ask_as_stranger(memory: Strandline, answer: UUID) -> None:
    """Have Tomas ask what Mara told Keel alone, and read the answer by its id."""
    _print_title("3. It tells nobody what was said without them")
    print(f"{_INDENT}Tomas asks: {PRIVATE.text}")
    recall = memory.recall(PRIVATE.text, participants=[TOMAS], min_relevance=_MIN_RELEVANCE)
    is_hidden = answer not in {hit.event_id for hit in recall.hits}
    _exit_unless(is_hidden, "Recall finds what Tomas may not see.")
    _print_wrapped("Nothing is known of it: Mara told that to Keel alone.", indent=2)
    try:
        memory.get(answer, participants=[TOMAS])
        _exit_unless(False, "Tomas can read what he may not see.")
    except NotFoundError as error:
        _print_wrapped(f'He asks for that message by its id: "{error.message}"', indent=2)


def _state_fact_and_its_end(memory: Strandline) -> None:
    """Have the agent state a fact about an entity, and later another that ends it."""
    _print_title("4. Its knowledge graph keeps what held when")
    _print_wrapped(
        "Keel states a fact about the entity Mara. A second one ends it, and gives the reason:"
    )
    mara = {"type": "entity", "ref": "mara", "name": "Mara", "kind": "person"}
    former = _make_fact_about_entity(FORMER_FACT, "2026-08-04T07:28:59Z", "mara")
    nodes = memory.graph.add([mara, former], participants=MARA_AND_KEEL, speaker=KEEL).nodes
    ids = {node.type: node.id for node in nodes}
    later = _make_fact_about_entity(FACT, "2026-10-13T19:38:09Z", ids["entity"])
    later |= {"invalidates": ids["fact"], "reason": REASON}
    memory.graph.add([later], participants=MARA_AND_KEEL, speaker=KEEL)
    history = memory.graph.history(ids["fact"], participants=MARA_AND_KEEL)
    for one in history.revisions:
        end = "today" if one.valid_to is None else _format_day(one.valid_to)
        _print_wrapped(f"{_format_day(one.valid_from)} to {end}: {one.content}", indent=2)
        if one.reason:
            _print_wrapped(f"Ended, because: {one.reason}", indent=3)


def _make_fact_about_entity(content: str, valid_from: str, entity: str) -> dict[str, Any]:
    about = [{"edge": "fact_entity", "target": entity}]
    return {"type": "fact", "content": content, "valid_from": valid_from, "relationships": about}


def _print_context_text(memory: Strandline) -> None:
    """Print the text for an agent's prompt, whole."""
    context = memory.context(CHANGED.text, participants=MARA_AND_KEEL, budget=CONTEXT_TOKENS)
    _print_title(f"5. It fits a prompt: {context.tokens} tokens for Keel to answer Mara from")
    print(f"{_INDENT}Mara asks Keel: {CHANGED.text}")
    for line in context.text.splitlines():
        _print_wrapped(line, margin=f"{_INDENT}| ")


def _store_and_erase_secret(memory: Strandline) -> UUID:
    """Store what nobody should, and erase it. Returns the erasure's id."""
    _print_title("6. It forgets when told to")
    _print_wrapped(f'Mara tells Keel: "{SECRET}"')
    event_id = memory.add(SECRET, participants=MARA_AND_KEEL, speaker=MARA).event_id
    _exit_unless(_does_recall_find_secret(memory), "Recall does not find what was just stored.")
    preview = memory.preview_erasure(event_ids=[event_id])
    print(
        f"{_INDENT}Recall finds it. A dry run says what an erasure takes: {preview.events} event."
    )
    erasure = memory.erase(event_ids=[event_id])
    _exit_unless(not _does_recall_find_secret(memory), "Recall finds what was erased.")
    print(f"{_INDENT}Erased at {erasure.unreadable_at:%H:%M:%S} UTC. Recall finds it no more.")
    try:
        memory.get(event_id, participants=MARA_AND_KEEL)
        _exit_unless(False, "What was erased can be read.")
    except GoneError as error:
        _print_wrapped(f'Keel asks for that message by its id: "{error.message}"')
    return erasure.erasure_id


def _does_recall_find_secret(memory: Strandline) -> bool:
    hits = memory.recall("What is the code of the safe?", participants=MARA_AND_KEEL).hits
    return any(hit.text == SECRET for hit in hits)


def _print_next_steps(place: DemoServiceAndTenant, erasure_id: UUID) -> None:
    """Print calls to copy, by the names of the README, and where to read on."""
    _print_title("Go on with this memory (the key is good for a day)")
    question = json.dumps({"query": QUESTIONS[0].text, "participants": [MARA]})
    header = '-H "X-API-Key: $KEY"'
    print(
        f"""\
API={place.url}/api/v1
KEY={place.key}
# ask something else:
curl -s{place.trust} $API/recall {header} -H 'Content-Type: application/json' -d '{question}'
# the signed receipt of the erasure, a minute or two from now:
curl -s{place.trust} $API/erasures/{erasure_id} {header}

Next: "First use" in README.md gives your own agent a memory, in six lines of Python;
{place.url}/console shows what is remembered, and why;
{place.url}/docs has every call, and tries it."""
    )


def _exit_unless(is_right: bool, sentence: str) -> None:
    if not is_right:
        raise SystemExit(f"\nstrandline: the demo fails: {sentence}")


def _print_title(text: str) -> None:
    print(f"\n{text}", flush=True)


def _print_wrapped(text: str, indent: int = 1, margin: str = "") -> None:
    prefix = margin or _INDENT * indent
    print(textwrap.fill(text, _WIDTH, initial_indent=prefix, subsequent_indent=prefix))


def _format_participant_name(participant: str) -> str:
    """The name of `user:mara` for people: `Mara`."""
    return participant.rpartition(":")[2].capitalize()


def _join_participant_names(people: People) -> str:
    *first, last = map(_format_participant_name, people)
    return f"{', '.join(first)} and {last}"


def _format_day(moment: datetime) -> str:
    return f"{moment.day} {moment:%B %Y}"


def _format_time(moment: datetime) -> str:
    return f"{_format_day(moment)}, {moment:%H:%M} UTC"


if __name__ == "__main__":
    sys.exit(main())
