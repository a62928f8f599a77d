"""Events of one time come in the order of the log, wherever they are read in order of time."""

from pathlib import Path

from strandline.commands.main import main
from tests.strandline.client.conftest import HttpService, service

__all__ = ["service"]
FILE = Path(__file__).parent / "exports" / "claude_same_time.json"
TEXTS = [
    "Question one: where is the spare key?",
    "Answer one: under the pot.",
    "Question two: which pot?",
    "Answer two: the blue one.",
]


def test_equal_times_keep_question_before_answer(service: HttpService) -> None:
    key = service.gateway.key(rights=("read", "write", "admin"))
    assert main(["--url", service.url, "--key", key, "import", str(FILE), "--user", "ann"]) == 0
    with service.client(user="user:ann") as memory:
        (scope,) = memory.scopes()
        ordered = memory.recall("spare key pot", order="time", min_relevance=0, limit=10)
        session = memory.session("claude-k-same")
        recent = session.working_memory().recent
        readings: dict[str, list[str | None]] = {
            "feed": [event.content for event in memory.events(scope.scope_id)],
            "get_all": [event.content for event in memory.get_all()][::-1],
            "recall": [hit.text for hit in ordered.hits],
            "session": [item.event.content for item in recent][::-1],
        }
        blocks = [
            memory.context("spare key pot").text,
            memory.context(session_id="claude-k-same").text,
            session.context("Which pot?").text,
        ]
    assert readings == dict.fromkeys(readings, TEXTS)
    for text in blocks:
        places = [text.index(line) for line in TEXTS]
        assert places == sorted(places), text
