"""`make demo`: feed the conversation that ships with the project, and ask it questions."""

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from strandline.local.run import directory, port
from strandline.local.service import key_file, running

_BATCH = 20
_QUESTIONS = 6
_SHOWN = 3
_PATIENCE_SECONDS = 60
_BAR = 40


class Client:
    """HTTP calls to a running service."""

    def __init__(self, url: str, key: str) -> None:
        self._url, self._key = url, key

    def post(self, path: str, body: object) -> dict[str, Any]:
        """The answer's body. Raises SystemExit with the service's own words for a refusal."""
        headers = {"X-API-Key": self._key, "Content-Type": "application/json"}
        request = urllib.request.Request(  # noqa: S310 -- our own address
            self._url + path, json.dumps(body).encode(), headers
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
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


def _await_vectors(client: Client) -> None:
    """The worker embeds in the background; the demo asks once it is through."""
    asked = {"query": "anything", "participants": ["user:mara"], "limit": 100}
    for _ in range(_PATIENCE_SECONDS * 4):
        if not client.post("/api/v1/recall", asked)["not_yet_embedded"]:
            return
        time.sleep(0.25)


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/health", timeout=2).close()  # noqa: S310
        return True
    except (urllib.error.URLError, TimeoutError):
        return False


@contextmanager
def _service() -> Generator[tuple[str, str]]:
    """The service that runs already, or one for as long as the demo takes."""
    file = key_file(directory())
    known = json.loads(file.read_text()) if file.exists() else {"url": ""}
    if known["url"] and _answers(known["url"]):
        yield known["url"], known["key"]
        return
    print("No service is running on this data; starting one for the demo.")
    with running(directory(), port()) as service:
        yield service.url, service.key


def main() -> int:
    """Feed and ask."""
    folder = Path("events/demo")
    with _service() as (url, key):
        client = Client(url, key)
        print(f"Feeding {folder / 'conversation.jsonl'} to {url}")
        started = time.monotonic()
        ids, cited = feed(client, folder)
        print(f"  {len(ids)} events and {cited} citations in {time.monotonic() - started:.1f} s")
        _await_vectors(client)
        questions = [
            json.loads(line) for line in (folder / "questions.jsonl").read_text().splitlines()
        ]
        shown = [q for q in questions if q["expected"]][:: max(1, len(questions) // _QUESTIONS)]
        for question in shown[: _QUESTIONS - 1]:
            ask(client, question)
        hidden = next(q for q in questions if not q["expected"])
        leaked = ask(client, hidden) & {ids[key] for key in hidden["hidden"]}
    print(f"\nThe last was asked by people who were not in the room: {len(leaked)} of the ", end="")
    print(f"{len(hidden['hidden'])} events that answer it are among what they found.")
    return 1 if leaked else 0


if __name__ == "__main__":
    sys.exit(main())
