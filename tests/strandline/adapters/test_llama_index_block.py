"""The memory block for LlamaIndex. The cases follow the interface of the installed package; its
own tests of blocks were tried with this one (docs/adapters/llama-index.md)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage, TextBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import InsertMethod, Memory, StaticMemoryBlock
from sqlalchemy.ext.asyncio import create_async_engine

from strandline import AsyncStrandline, Strandline
from strandline.adapters.llama_index import StrandlineMemoryBlock, flush_memory
from strandline.client.errors import InvalidFieldError, UnauthorizedError
from tests.strandline.adapters.conftest import Users, list_texts, lose_first_answer


def make_block(users: Users, **options: Any) -> StrandlineMemoryBlock:
    return StrandlineMemoryBlock(user=users.alice, agent="helper", **options)


ENGINE = create_async_engine("sqlite+aiosqlite:///:memory:")
"""Of the framework's chat store, which closes none of its own."""


def make_memory(*blocks: Any, name: str, **options: Any) -> Memory:
    framework: Any = Memory  # its types are partly unknown
    memory: Memory = framework.from_defaults(
        session_id=name, memory_blocks=[*blocks], async_engine=ENGINE, **options
    )
    return memory


def say(role: str, text: str, **fields: Any) -> Any:
    return ChatMessage(role=role, content=text, **fields)


def use(block: StrandlineMemoryBlock, talk: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Talk in an event loop, and close the connections of the block."""

    async def run() -> None:
        try:
            await talk()
        finally:
            await block.aclose()
            await ENGINE.dispose()

    asyncio.run(run())


def test_llama_index_block_gets_and_puts(users: Users, client: Strandline) -> None:
    block = make_block(users, name="harbour", priority=2, budget=200)

    async def talk() -> None:
        assert (block.name, block.priority, block.budget) == ("harbour", 2, 200)
        assert "Nothing" in await block.aget()
        messages = [
            say("system", "Be brief."), say("user", "The tide turns at noon."),
            say("assistant", "Noted."), say("tool", "42 metres"), say("user", "  "),
        ]  # fmt: skip
        await block.aput(messages, session_id=f"one-{users.alice}")
        await block.aput([say("user", "I like tea.")])
        await block.aput([])
        known = await block.aget([say("user", "When does the tide turn?"), say("assistant", "")])
        assert "The tide turns at noon." in known
        deaf = make_block(users, accept_short_term_memory=False)
        await deaf.aput(messages, from_short_term_memory=True)
        await deaf.aclose()

    use(block, talk)
    assert list_texts(client, users.alice) == [
        ("user", "The tide turns at noon.", True), ("agent", "Noted.", True),
        ("user", "I like tea.", False),
    ]  # fmt: skip


def test_llama_index_block_takes_what_leaves_queue(users: Users, client: Strandline) -> None:
    """Each message once: what a full queue gave, and what is flushed at the end."""
    block = make_block(users)
    texts = [f"Number {n}: " + "the tide turns" + ", the tide turns" * 20 for n in range(8)]

    async def talk() -> None:
        static = StaticMemoryBlock(name="static", static_content=[TextBlock(text="Be brief.")])
        memory = make_memory(
            static, block, name=f"one-{users.alice}", token_limit=600, token_flush_size=100
        )
        for number, text in enumerate(texts):
            await memory.aput(say("assistant" if number % 2 else "user", text))
        stored = len(list_texts(client, users.alice))
        assert 0 < stored < len(texts)
        for _ in range(2):
            await flush_memory(memory)
        assert len(await memory.aget_all()) == len(texts)

    use(block, talk)
    assert [text for _, text, _ in list_texts(client, users.alice)] == [
        one.strip() for one in texts
    ]


def test_llama_index_block_stores_retried_messages_once(users: Users, client: Strandline) -> None:
    block = make_block(users)

    async def talk() -> None:
        memory = make_memory(block, name=f"one-{users.alice}")
        await memory.aput_messages([say("user", "Yes."), say("assistant", "Aye.")])
        lose_first_answer(block)
        with pytest.raises(ConnectionError):
            await flush_memory(memory)
        await flush_memory(memory)
        await memory.aput_messages([say("user", "Yes."), say("assistant", "Aye.")])
        await flush_memory(memory)

    use(block, talk)
    assert [text for _, text, _ in list_texts(client, users.alice)] == ["Yes.", "Aye."] * 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of pydantic, in the framework
@pytest.mark.parametrize("method", [InsertMethod.SYSTEM, InsertMethod.USER])
def test_llama_index_block_is_in_prompt_of_agent(users: Users, method: InsertMethod) -> None:
    """By the framework's own fake of a model that calls functions."""
    prompts: list[str] = []

    def respond(messages: Any, **options: Any) -> ChatMessage:
        prompts.append(str([message.content for message in messages]))
        return say("assistant", "Aye.")

    block = make_block(users)

    async def talk() -> None:
        model = MockFunctionCallingLLM(response_generator=respond)
        agent: Any = FunctionAgent(llm=model, tools=[])
        for number, words in enumerate(("I moor at pier B.", "Where do I moor?")):
            memory = make_memory(block, name=f"{number}-{users.alice}", insert_method=method)
            assert str(await agent.run(words, memory=memory)) == "Aye."
            await flush_memory(memory)

    use(block, talk)
    assert "pier B" in prompts[-1]


def test_llama_index_block_tells_of_errors(users: Users, client: Strandline) -> None:
    with pytest.raises(ValueError, match="name the user"):
        StrandlineMemoryBlock(agent="helper")
    client.add("Hello.", user=users.bob, session_id=f"of-{users.bob}")
    block = make_block(users)

    async def talk() -> None:
        with pytest.raises(InvalidFieldError, match="this session has other participants"):
            await block.aput([say("user", "Hello.")], session_id=f"of-{users.bob}")
        async with AsyncStrandline(key="strandline_wrong") as stranger:
            with pytest.raises(UnauthorizedError):
                await make_block(users, async_client=stranger).aget()

    use(block, talk)
