"""A service with a scripted model, for queries and chats; and what the model was shown."""

import importlib
import json
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Literal
from uuid import uuid4

import pytest

from strandline.config import ServiceSettings
from strandline.db.database import Caller, Database
from strandline.llm.client import Fallback
from strandline.llm.prompts import AnswerTask
from strandline.llm.tasks import LlmTasks
from strandline.llm.types import MemoryAnswer, MessageToAnswer, ModelResult, TaskContext
from strandline.local.lambda_context import LambdaContext
from strandline.personas import store_deferred_answers
from strandline.resources import Resources
from tests.chains import warm
from tests.context_block import Block, read_block
from tests.model_server import ModelServer, Says, completion, serving, task_of
from tests.strandline.topics.outline import fold_all
from tests.support import KEY_SECRET, Gateway, Reply, ScratchDatabase

CHAT, QUERY, TURNS, SONAS = "/api/v1/chat", "/api/v1/query", "/api/v1/turns", "/api/v1/sonas"
_LINE = re.compile(r"^\[(\d+)\](.*)$", re.MULTILINE)


@contextmanager
def scripted_model(patch: pytest.MonkeyPatch) -> Generator[ModelServer]:
    """A model in the settings of every function; begin it before the service."""
    patch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as provider:
        settings = {"PROVIDER": "openai", "BASE_URL": provider.url, "MODEL": "tiny"}
        for name, value in {**settings, "CALLS_PER_MINUTE": "100000"}.items():
            patch.setenv(f"STRANDLINE_LLM_{name}", value)
        try:
            yield provider
        finally:
            for name in ("worker", "sweeper", "query", "mcp", "builder", "promoter"):
                service: Resources = importlib.import_module(f"functions.{name}.handler").resources
                if "llm" in service.__dict__:
                    usage: Any = service.llm.__dict__["_provider"]
                    if usage is not None:
                        usage.close()


def says(text: str, *citations: int, remembers: bool = True) -> Says:
    """An answer of the model."""
    answer = {"text": text, "remembers": remembers, "citations": list(citations)}
    return completion(json.dumps(answer))


def shown_lines(request: dict[str, Any]) -> dict[int, str]:
    """The memories that a request showed to the model, by number."""
    block = request["messages"][1]["content"].partition("</memory-")[0]
    return {int(number): line for number, line in _LINE.findall(block)}


def cite_all(request: dict[str, Any]) -> Says:
    """A model that answers with the number of memories, and cites every one."""
    numbers = list(shown_lines(request))
    return says(f"I was shown {len(numbers)}.", *numbers, remembers=bool(numbers))


def texts_of(request: dict[str, Any]) -> list[str]:
    """The texts that a task of the background shows to the model: of events, summaries, parts."""
    lines = [line for line in request["messages"][1]["content"].splitlines() if line[:1] == "{"]
    documents = [json.loads(line) for line in lines]
    texts = [one.get("text") or one.get("summary") or "" for one in documents]
    return ["".join(c if c.isprintable() else " " for c in text) for text in texts if text.strip()]


def believe(request: dict[str, Any]) -> Says:
    """A model that takes whatever it is shown into summaries, topics and the graph, in words that
    no event has; and answers as `cite_all`."""
    task = task_of(request)
    if task in ("answer", "reply"):
        return cite_all(request)
    texts = texts_of(request) or ["nothing"]
    text = " ".join(["Unsaid, so far:", *texts])[:600]
    topic = f"Unsaid: {texts[0]}"[:100]
    fact = {
        "content": text,
        "category": "general",
        "about": [],
        "confidence": 0.9,
        "events": [1],
    }
    answers: dict[str, dict[str, Any]] = {
        "continues": {"continues": True},
        "summarise": {"summary": text, "importance": 0.9},
        "merge": {"summary": text, "importance": 0.9},
        "topic": {"topic": topic},
        "entities": {"entities": []},
        "overview": {"summary": text, "topic": topic},
        "contradicts": {"contradicts": False},
        "extract": {"entities": [], "facts": [fact], "decisions": [], "relations": []},
    }
    return completion(json.dumps(answers[task]))


def fold_and_promote(gateway: Gateway, base: ScratchDatabase) -> None:
    """All that is told becomes chains, topics and a graph."""
    fold_all(gateway, base)
    warm(base)
    assert gateway.run_job("builder", "acme")
    assert gateway.run_job("promoter", "acme")["chains_promoted"] > 0
    gateway.sweep()


def read_prompt(request: dict[str, Any]) -> tuple[Block, dict[str, Any]]:
    """What a request shows of memory, and its question or message; each is where it belongs. Raises
    AssertionError where stored text could be taken for anything else."""
    assert request.keys().isdisjoint({"tools", "functions", "tool_choice"})
    text: str = request["messages"][1]["content"]
    block, rest = text.split("\n</memory-", 1)
    mark, tag, line, end = rest.split("\n")
    assert (tag, end) in (("<question>", "</question>"), ("<message>", "</message>"))
    assert not {"<", ">"} & {*line}, "it could close its tag"
    return read_block(f"{block}\n</memory-{mark}"), json.loads(line)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """In the settings of every function; comes before them."""
    with scripted_model(monkeypatch) as server:
        server.otherwise = cite_all
        yield server


@pytest.fixture
def front(provider: ModelServer, gateway: Gateway) -> Gateway:
    del provider
    return gateway


def chat(gateway: Gateway, key: str, text: str, *who: str, **more: Any) -> Reply:
    """A message among `who`."""
    headers = {"Idempotency-Key": more.pop("once")} if "once" in more else {}
    body = {"message": text, "participants": list(who), **more}
    return gateway.call("POST", CHAT, body, key=key, headers=headers)


def query(gateway: Gateway, key: str, text: str, **more: Any) -> Reply:
    """A question."""
    return gateway.call("POST", QUERY, {"query": text, **more}, key=key)


def deliver_turn(turn_id: str, tenant: str = "acme") -> list[Any]:
    """The message about a turn, as SQS gives it; returns what failed."""
    handler = importlib.import_module("functions.worker.handler").lambda_handler
    body = json.dumps({"tenant": tenant, "scopes": [], "turns": [turn_id]})
    records = {"Records": [{"messageId": "m", "body": body}]}
    return handler(records, LambdaContext("worker", 120))["batchItemFailures"]


class ScriptedTasks(LlmTasks):
    """A language model that cites the first memory, or is late; the other tasks have none."""

    def __init__(self, failure: Literal["out_of_time"] | None = None) -> None:
        settings = ServiceSettings(database_url="", bucket="", key_secret=KEY_SECRET)
        super().__init__(Database("host=127.0.0.1 port=9"), settings, None)
        self._failure: Literal["out_of_time"] | None = failure

    @property
    def has_model(self) -> bool:
        """It answers."""
        return True

    def answer(
        self,
        task: TaskContext,
        verb: AnswerTask,
        block: str,
        memory_count: int,
        message: MessageToAnswer,
    ) -> ModelResult[MemoryAnswer]:
        """From the first memory."""
        if self._failure:
            raise Fallback(self._failure)
        answer = MemoryAnswer(
            text=f"You said: {message.text}",
            remembers=memory_count > 0,
            citations=[1] if memory_count else [],
        )
        return ModelResult(answer, "openai:gpt-5", f"{verb}/1")


def use_model(tasks: LlmTasks | None, function: str = "query") -> LlmTasks | None:
    """Give a function another language model; returns the one before. None: its own."""
    service: Resources = importlib.import_module(f"functions.{function}.handler").resources
    before = service.__dict__.pop("llm", None)
    if tasks is not None:
        service.__dict__["llm"] = tasks
    return before


def waiting_turn(
    gateway: Gateway, user: str, asked_by: str | None = None, tenant: str = "acme"
) -> str:
    """A query of a user's that waits for its answer; gives its id."""
    access = gateway.database.connect_as(Caller(tenant, (user,), asked_by or user))
    turn_id = uuid4()
    with access.transaction():
        store_deferred_answers.insert_deferred_answer(access, turn_id, "query", [user], {}, None)
    return str(turn_id)
