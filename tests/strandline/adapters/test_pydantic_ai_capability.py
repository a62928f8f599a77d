"""The capability for Pydantic AI. No contract tests are published for capabilities: the ways in
which the framework's documentation uses one are tried with this one."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ImageUrl, RunContext
from pydantic_ai.capabilities import Hooks
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from strandline import AsyncStrandline, Strandline
from strandline.adapters.pydantic_ai import StrandlineMemory
from strandline.client.errors import InvalidFieldError, UnauthorizedError
from tests.strandline.adapters.conftest import Users, list_texts, lose_first_answer

SAYS = ("agent", "Aye.", True)


class RequestLog:
    """A model of the framework's own fake that says aye, and what it was given."""

    def __init__(self) -> None:
        self.instructions: list[str] = []
        self.tools: list[str] = []
        self.model: Any = FunctionModel(self.answer, stream_function=self.stream)

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """What a request is answered."""
        self.instructions.append(info.instructions or "")
        self.tools = [tool.name for tool in info.function_tools]
        return ModelResponse([TextPart("Aye.")])

    async def stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        """The same, in two parts."""
        self.instructions.append(info.instructions or "")
        yield "A"
        yield "ye."


def make_memory(users: Users, **options: Any) -> StrandlineMemory:
    return StrandlineMemory(user=users.alice, agent="helper", **options)


def use(memory: StrandlineMemory, talk: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Talk with agents in an event loop, and close the connections of the memory."""

    async def run() -> None:
        try:
            await talk()
        finally:
            await memory.aclose()

    with asyncio.Runner() as runner:
        runner.run(run())


def test_pydantic_ai_capability_replaces_what_no_event_can_have(
    users: Users, client: Strandline
) -> None:
    """What is pasted from a file."""
    memory = make_memory(users)
    agent: Any = Agent(RequestLog().model, capabilities=[memory])

    async def talk() -> None:
        assert (await agent.run("The tide\x00turns at noon.\udc80")).output == "Aye."

    use(memory, talk)
    assert "The tide\ufffdturns at noon.\ufffd" in [
        event.content for event in client.get_all(user=users.alice)
    ]


def test_pydantic_ai_capability_serves_each_way_to_run(users: Users, client: Strandline) -> None:
    requests, memory = RequestLog(), make_memory(users)
    agent: Any = Agent(requests.model, capabilities=[memory])

    async def talk() -> None:
        first = await agent.run("The tide turns at noon.")
        assert "Nothing" in requests.instructions[-1]
        await agent.run("When does it turn?", message_history=first.all_messages())
        assert "The tide turns at noon." in requests.instructions[-1]
        async with agent.run_stream("Say it in parts.") as stream:
            assert [text async for text in stream.stream_text(debounce_by=None)][-1] == "Aye."
        async with agent.iter("Step by step.") as steps:
            async for _ in steps:
                pass

    use(memory, talk)
    with asyncio.Runner() as runner:
        asyncio.set_event_loop(runner.get_loop())
        agent.run_sync("Now at once.")
        runner.run(memory.aclose())
        asyncio.set_event_loop(None)
    assert requests.tools == ["recall_memory", "save_memory"]
    assert list_texts(client, users.alice) == [
        ("user", "The tide turns at noon.", True), SAYS,
        ("user", "When does it turn?", True), SAYS,
        ("user", "Say it in parts.", True), SAYS,
        ("user", "Step by step.", True), SAYS,
        ("user", "Now at once.", True), SAYS,
    ]  # fmt: skip
    events = [*client.get_all(user=users.alice, agent="helper")]
    assert len({event.session_id for event in events}) == 4, "the first two are one conversation"


def test_pydantic_ai_capability_reads_block_once_in_run(users: Users, client: Strandline) -> None:
    """The model calls both tools, and is asked again: the block is the same."""
    instructions: list[str | None] = []
    client.add("The tide turns at noon.", user=users.alice, agent="helper")

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        instructions.append(info.instructions)
        if len(messages) > 1:
            return ModelResponse([TextPart("Aye.")])
        return ModelResponse(
            [
                ToolCallPart("recall_memory", {"query": "When does the tide turn?"}, "one"),
                ToolCallPart("save_memory", {"text": "She moors at pier B."}, "two"),
            ]
        )

    memory = make_memory(users)

    async def talk() -> None:
        agent: Any = Agent(FunctionModel(answer), capabilities=[memory])
        result = await agent.run("Hello.")
        results = [part.content for part in result.all_messages()[2].parts]
        assert "The tide turns at noon." in results[0]
        assert results[1:] == ["Saved."]

    use(memory, talk)
    assert instructions[0] == instructions[1]
    assert list_texts(client, users.alice)[1:] == [
        ("agent", "She moors at pier B.", True), ("user", "Hello.", True), SAYS,
    ]  # fmt: skip


def test_pydantic_ai_capability_stores_texts_alone(users: Users, client: Strandline) -> None:
    """Of a prompt with a picture, and of an answer that is a model of data."""

    class Depth(BaseModel):
        metres: int

    memory = make_memory(users, tools=False)

    async def talk() -> None:
        model = TestModel(custom_output_args={"metres": 42})  # the framework's own fake
        agent: Any = Agent(model, output_type=Depth, capabilities=[memory])
        await agent.run(["What is", ImageUrl("https://example.org/a.png"), "this depth?"])

    use(memory, talk)
    assert list_texts(client, users.alice) == [
        ("user", "What is\nthis depth?", True), ("agent", '{"metres":42}', True),
    ]  # fmt: skip


def test_pydantic_ai_capability_takes_user_from_run(users: Users, client: Strandline) -> None:
    """By the dependencies of the run, for one agent of all users, and by a run's own capability."""

    def choose(ctx: RunContext[str]) -> list[str]:
        return [f"user:{ctx.deps}", "agent:helper"]

    requests, memory, own = RequestLog(), StrandlineMemory(participants=choose), make_memory(users)

    async def talk() -> None:
        agent: Any = Agent(requests.model, deps_type=str, capabilities=[memory])
        await agent.run("I moor at pier B.", deps=users.alice)
        await agent.run("Where do I moor?", deps=users.bob)
        assert "pier B" not in requests.instructions[-1]
        await agent.run("Where do I moor?", deps=users.alice)
        assert "pier B" in requests.instructions[-1]
        with pytest.raises(ValueError, match="name the user"):
            await agent.run("Where do I moor?", deps="")
        bare: Any = Agent(requests.model)
        await bare.run("Where do I moor?", capabilities=[own])
        assert "pier B" in requests.instructions[-1]
        await own.aclose()

    use(memory, talk)
    assert [text for _, text, _ in list_texts(client, users.bob)] == ["Where do I moor?", "Aye."]


def test_pydantic_ai_capability_comes_from_spec_and_loads_late(users: Users) -> None:
    requests, memories = RequestLog(), list[StrandlineMemory]()

    @dataclass(init=False)
    class Kept(StrandlineMemory):
        """One that can be closed, though the framework makes it."""

        @classmethod
        def from_spec(cls, *args: Any, **kwargs: Any) -> StrandlineMemory:
            memories.append(StrandlineMemory(*args, **kwargs))
            return memories[-1]

    spec: Any = {"capabilities": [{"Kept": {"user": users.alice, "agent": "helper"}}]}
    agent: Any = Agent.from_spec(spec, model=requests.model, custom_capability_types=[Kept])
    memory = make_memory(users, id="memory", description="Memory.", defer_loading=True)

    async def talk() -> None:
        await agent.run("Hello.")
        await agent.run("Hello?")
        assert "Hello." in requests.instructions[-1]
        await memories[0].aclose()
        late: Any = Agent(requests.model, capabilities=[memory])
        await late.run("Hello?")
        assert requests.tools == ["load_capability"]

    use(memory, talk)


def test_pydantic_ai_capability_stores_run_once(users: Users, client: Strandline) -> None:
    """The answer to what was stored is lost, and the run's end is carried out again."""
    memory = make_memory(users, tools=False)

    async def talk() -> None:
        agent: Any = Agent(RequestLog().model, capabilities=[memory])
        contexts: list[Any] = []
        hooks = Hooks[Any]()

        @hooks.on.before_run
        async def keep(ctx: RunContext[Any]) -> None:
            contexts.append(ctx)

        result = await agent.run("The tide turns.", capabilities=[hooks])
        lose_first_answer(memory)
        with pytest.raises(ConnectionError):
            await memory.after_run(contexts[0], result=result)
        await memory.after_run(contexts[0], result=result)
        assert contexts[0].run_id

    use(memory, talk)
    assert list_texts(client, users.alice) == [("user", "The tide turns.", True), SAYS]


def test_pydantic_ai_capability_tells_of_errors(users: Users, client: Strandline) -> None:
    with pytest.raises(ValueError, match="name the user"):
        StrandlineMemory(agent="helper")
    with pytest.raises(ValueError, match="names the user and the agent, too"):
        StrandlineMemory(user="alice", participants=lambda: ["user:alice"])
    client.add("Hello.", user=users.bob, session_id=f"of-{users.bob}")
    memory = make_memory(users)

    async def talk() -> None:
        agent: Any = Agent(RequestLog().model, capabilities=[memory])
        with pytest.raises(InvalidFieldError, match="this session has other participants"):
            await agent.run("Hello.", conversation_id=f"of-{users.bob}")
        async with AsyncStrandline(key="strandline_wrong") as stranger:
            strange: Any = make_memory(users, async_client=stranger)
            with pytest.raises(UnauthorizedError):
                await Agent(RequestLog().model, capabilities=[strange]).run("Hello.")

    use(memory, talk)
