"""`make demo`: feed the conversation that ships with the project, and ask it questions."""

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from strandline.local import scores
from strandline.local.run import directory, port
from strandline.local.scores import Found
from strandline.local.service import key_file, running
from strandline.local.tls import Tls

_BATCH = 20
_QUESTIONS = 6
_SHOWN = 3
_NAMED = 6
_PATIENCE_SECONDS = 60
_BAR = 40


class Client:
    """HTTP calls to a running service."""

    def __init__(self, url: str, key: str, tls: Tls | None = None) -> None:
        self._url, self._key = url, key
        self._context = tls and tls.client_context()

    def post(self, path: str, body: object) -> dict[str, Any]:
        """The answer's body. Raises SystemExit with the service's own words for a refusal."""
        return self._call(path, json.dumps(body).encode())

    def get(self, path: str) -> dict[str, Any]:
        """The answer's body. Raises SystemExit as `post` does."""
        return self._call(path, None)

    def _call(self, path: str, body: bytes | None) -> dict[str, Any]:
        headers = {"X-API-Key": self._key, "Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, body, headers)  # noqa: S310 -- our own
        try:
            with urllib.request.urlopen(  # noqa: S310
                request, timeout=30, context=self._context
            ) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise SystemExit(
                f"\nstrandline: {path} answered {error.code}: {error.read().decode()}"
            ) from None


def events(folder: Path) -> Iterator[dict[str, Any]]:
    """The conversation's events, large payloads put in, without the citations between them."""
    for line in (folder / "conversation.jsonl").read_text().splitlines():
        event = json.loads(line)
        if file := event.pop("content_file", None):
            event["content"] = (folder / file).read_text()
        yield event


def feed(client: Client, folder: Path) -> tuple[dict[str, str], int]:
    """Append the conversation in order; gives the events' ids by their keys, and the number of
    citations. Events that cite earlier ones wait until those have their ids."""
    ids: dict[str, str] = {}
    waiting: list[dict[str, Any]] = []
    everything = list(events(folder))
    cited = 0
    for done, event in enumerate(everything, 1):
        keys = event.pop("cites", [])
        if any(key not in ids for key in keys):
            ids |= _flush(client, waiting)
        event["edges"] = [{"event_id": ids[key], "weight": 0.8} for key in keys]
        cited += len(keys)
        waiting.append(event)
        if len(waiting) == _BATCH or done == len(everything):
            ids |= _flush(client, waiting)
        _progress(done, len(everything))
    return ids, cited


def _flush(client: Client, waiting: list[dict[str, Any]]) -> dict[str, str]:
    if not waiting:
        return {}
    answer = client.post("/api/v1/events/batch", {"events": waiting, "atomic": True})
    found = {
        event["source_event_key"]: result["event"]["event_id"]
        for event, result in zip(waiting, answer["results"], strict=True)
    }
    waiting.clear()
    return found


def _progress(done: int, total: int) -> None:
    filled = _BAR * done // total
    end = "\n" if done == total else ""
    bar = "█" * filled + "░" * (_BAR - filled)
    print(f"\r  {bar} {done}/{total} events", end=end, flush=True)


def ask(client: Client, question: dict[str, Any]) -> set[str]:
    """Print a question's best memories with their citations; gives the ids of all found."""
    asked = {"query": question["question"], "participants": question["participants"], "limit": 20}
    answer = client.post("/api/v1/recall", asked)
    print(f"\n{', '.join(question['participants'])} ask: {question['question']}")
    for place, hit in enumerate(answer["hits"][:_SHOWN], 1):
        event = hit["event"]
        text = event["content"] or f"[{event['blob']['name']}, {event['blob']['size']:,} bytes]"
        said = f"{event['speaker'] or event['role']}: {text}".replace("\n", " ")
        when = (event["occurred_at"] or event["recorded_at"])[:16].replace("T", " ")
        print(f"  {place}. {said[:110]}{'…' if len(said) > 110 else ''}")
        print(
            f"     cited: event {event['event_id']}, {when}, session {event['session_id']}, "
            f"seq {event['seq']}, score {hit['score']['total']:.3f}\n"
            f"            {event['cid']}"
        )
    if answer["degraded"]:
        print(f"  (degraded: {', '.join(answer['degraded'])})")
    return {hit["event"]["event_id"] for hit in answer["hits"]}


def show_chains(client: Client, folder: Path, keys: dict[str, str]) -> None:
    """Print the chains of the conversation's sessions, and how well they match what is expected of
    them. `keys` are the events' by their ids."""
    expected = scores.read(folder)
    chains = _settled(client, list(expected.lanes))
    still = len(keys) - sum(chain["event_count"] for chain in chains.values())
    print(f"\n{len(chains)} chains of {folder.name}'s sessions:")
    for chain in sorted(chains.values(), key=lambda one: one["started_at"]):
        named = ", ".join(entity["name"] for entity in chain["entities"][:_NAMED])
        print(
            f"  {chain['started_at'][:10]} {chain['session_id']} {chain['event_count']:3} events, "
            f"heat {chain['heat']:.2f}  {chain['topic']}{f'  [{named}]' if named else ''}"
            f"{'  (rejected)' if chain['rejected'] else ''}"
        )
    found = [
        Found(
            [keys[event] for event in chain["event_ids"]],
            [entity["name"] for entity in chain["entities"]],
        )
        for chain in chains.values()
    ]
    if still:
        print(f"{still} events are open until nobody has spoken for half an hour. Without them:")
    print(f"Boundaries within {scores.TOLERANCE} event: {scores.boundaries(expected, found)}")
    print(f"Entities: {scores.entities(expected, found)}")


def _settled(client: Client, sessions: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The sessions' chains by their ids, once the worker has formed what it can."""
    paths = [f"/api/v1/sessions/{one}/segments?include=all&limit=100" for one in sessions]
    seen: dict[str, dict[str, Any]] | None = None
    for _ in range(_PATIENCE_SECONDS):
        found = [chain for path in paths for chain in client.get(path)["segments"]]
        chains = {chain["chain_id"]: chain for chain in found}
        if seen is not None and chains.keys() == seen.keys():
            return chains
        seen = chains
        time.sleep(1)
    return seen or {}


def _await_vectors(client: Client, folder: Path) -> None:
    """The worker embeds in the background; the demo goes on once it is through."""
    for people in sorted({tuple(sorted(event["participants"])) for event in events(folder)}):
        asked = {"query": "anything", "participants": people, "limit": 1}
        for _ in range(_PATIENCE_SECONDS * 4):
            if not client.post("/api/v1/recall", asked)["not_yet_embedded"]:
                break
            time.sleep(0.25)


def _answers(url: str, tls: Tls | None) -> bool:
    context = tls and tls.client_context()
    try:
        urllib.request.urlopen(f"{url}/health", timeout=2, context=context).close()  # noqa: S310
        return True
    except (urllib.error.URLError, TimeoutError):
        return False


@contextmanager
def _service() -> Generator[tuple[str, str, Tls | None]]:
    """The service that runs already, or one for as long as the demo takes."""
    file = key_file(directory())
    known: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"url": ""}
    paths: dict[str, str] | None = known.get("tls")
    tls = Tls(**{name: Path(path) for name, path in paths.items()}) if paths else None
    if known["url"] and _answers(known["url"], tls):
        yield known["url"], known["key"], tls
        return
    print("No service is running on this data; starting one for the demo.")
    with running(directory(), port()) as service:
        yield service.url, service.key, service.tls


def _fed(client: Client, folder: Path) -> dict[str, str]:
    started = time.monotonic()
    print(f"Feeding {folder / 'conversation.jsonl'}")
    ids, cited = feed(client, folder)
    print(f"  {len(ids)} events and {cited} citations in {time.monotonic() - started:.1f} s")
    _await_vectors(client, folder)
    return ids


def _questions(client: Client, folder: Path, ids: dict[str, str]) -> int:
    """Ask some of a conversation's questions, the last by people who were not in the room; gives
    how many events they saw nevertheless."""
    lines = (folder / "questions.jsonl").read_text().splitlines()
    questions = [json.loads(line) for line in lines]
    shown = [q for q in questions if q["expected"]][:: max(1, len(questions) // _QUESTIONS)]
    for question in shown[: _QUESTIONS - 1]:
        ask(client, question)
    hidden = next(q for q in questions if not q["expected"])
    leaked = ask(client, hidden) & {ids[key] for key in hidden["hidden"]}
    print(f"\nThe last was asked by people who were not in the room: {len(leaked)} of the ", end="")
    print(f"{len(hidden['hidden'])} events that answer it are among what they found.")
    return len(leaked)


def main() -> int:
    """Feed and ask; then show the chains, and those of any other conversation that lies there with
    what is expected of it."""
    folder = Path("events/demo")
    others = sorted(path.parent for path in Path("events").glob("*/expected_entities.jsonl"))
    with _service() as (url, key, tls):
        client = Client(url, key, tls)
        print(f"The service answers at {url}.")
        ids = _fed(client, folder)
        leaked = _questions(client, folder, ids)
        for other in [folder, *(path for path in others if path != folder)]:
            ids = ids if other == folder else _fed(client, other)
            show_chains(client, other, {event: key for key, event in ids.items()})
    return 1 if leaked else 0


if __name__ == "__main__":
    sys.exit(main())
