"""An agent of each framework that runs in an event loop alone, driven by a scripted model: three
sessions, two users. What the first session said is used in the third, and nothing of the other
user."""

import asyncio
import importlib
from typing import Any

import pytest

from strandline import Strandline
from tests.strandline.adapters.agent_scripts import (
    FACT,
    QUESTION,
    Script,
    check_three_sessions,
    list_said,
)
from tests.strandline.adapters.conftest import Users


@pytest.fixture
def script() -> Script:
    return Script()


def test_adapter_agent_of_google_adk(client: Strandline, script: Script, users: Users) -> None:
    """As the documentation has it: a tool preloads memory, and a callback adds the session to it
    after each turn."""
    adk: Any = importlib.import_module("google.adk.agents")
    runners: Any = importlib.import_module("google.adk.runners")
    sessions: Any = importlib.import_module("google.adk.sessions")
    tools: Any = importlib.import_module("google.adk.tools.preload_memory_tool")
    models: Any = importlib.import_module("google.adk.models")
    types: Any = importlib.import_module("google.genai.types")
    from strandline.adapters.google_adk import StrandlineMemoryService

    class Model(models.BaseLlm):
        """ADK's package has no fake: this one answers by the script."""

        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
            text = script.answer(llm_request.contents)
            content = types.Content(role="model", parts=[types.Part(text=text)])
            yield models.LlmResponse(content=content)

    async def remember(callback_context: Any) -> None:
        await callback_context.add_session_to_memory()

    agent = adk.LlmAgent(
        name="pilot",
        model=Model(model="script"),
        tools=[tools.PreloadMemoryTool()],
        after_agent_callback=remember,
    )

    async def run(user: str, session: str, words: str) -> str:
        memory = StrandlineMemoryService()
        kept = sessions.InMemorySessionService()
        runner = runners.Runner(
            app_name="helper", agent=agent, session_service=kept, memory_service=memory
        )
        await kept.create_session(app_name="helper", user_id=user, session_id=session)
        message = types.Content(role="user", parts=[types.Part(text=words)])
        texts = [
            event.content.parts[0].text
            async for event in runner.run_async(
                user_id=user, session_id=session, new_message=message
            )
        ]
        await runner.close()
        await memory.aclose()
        return str(texts[-1])

    def talk(user: str, session: str, words: str) -> str:
        return asyncio.run(run(user, session, words))

    check_three_sessions(talk, script, users)
    assert list_said(client, users.alice).count(FACT) == 1


def test_adapter_agent_of_agent_framework(client: Strandline, script: Script, users: Users) -> None:
    """With both providers: the history keeps what was said, the context finds it elsewhere."""
    framework: Any = importlib.import_module("agent_framework")
    from strandline.adapters.agent_framework import (
        StrandlineContextProvider,
        StrandlineHistoryProvider,
    )

    class Model(framework.BaseChatClient):
        """The framework's package has no fake: this one answers by the script."""

        def _inner_get_response(self, *, messages: Any, **options: Any) -> Any:
            async def respond() -> Any:
                text = script.answer([message.text for message in messages])
                return framework.ChatResponse(messages=[framework.Message("assistant", [text])])

            return respond()

    async def run(user: str, session: str, words: str) -> str:
        whose: Any = {"user": user, "agent": "helper"}
        context = StrandlineContextProvider(**whose, store_messages=False)
        history = StrandlineHistoryProvider(**whose)
        agent = framework.Agent(client=Model(), context_providers=[context, history])
        result = await agent.run(words, session=framework.AgentSession(session_id=session))
        await context.aclose()
        await history.aclose()
        return str(result.text)

    def talk(user: str, session: str, words: str) -> str:
        return asyncio.run(run(user, session, words))

    check_three_sessions(talk, script, users)
    assert talk(users.alice, f"three-{users.alice}", "Thank you.")
    assert QUESTION in script.prompts[-1], "the session goes on"
    assert list_said(client, users.alice).count(FACT) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of pydantic, in the framework
def test_adapter_agent_of_llama_index(client: Strandline, script: Script, users: Users) -> None:
    workflow: Any = importlib.import_module("llama_index.core.agent.workflow")
    llms: Any = importlib.import_module("llama_index.core.llms")
    mock: Any = importlib.import_module("llama_index.core.llms.mock")
    memories: Any = importlib.import_module("llama_index.core.memory")
    databases: Any = importlib.import_module("sqlalchemy.ext.asyncio")
    from strandline.adapters.llama_index import StrandlineMemoryBlock, flush_memory

    def respond(messages: Any, **options: Any) -> Any:
        text = script.answer([message.content for message in messages])
        return llms.ChatMessage(role="assistant", content=text)

    async def run(user: str, session: str, words: str) -> str:
        block = StrandlineMemoryBlock(user=user, agent="helper")
        engine = databases.create_async_engine("sqlite+aiosqlite:///:memory:")
        memory = memories.Memory.from_defaults(
            session_id=session, memory_blocks=[block], async_engine=engine
        )
        model = mock.MockFunctionCallingLLM(response_generator=respond)  # the framework's own fake
        agent = workflow.FunctionAgent(llm=model, tools=[])
        result = await agent.run(words, memory=memory)
        await flush_memory(memory)
        await engine.dispose()
        await block.aclose()
        return str(result)

    def talk(user: str, session: str, words: str) -> str:
        return asyncio.run(run(user, session, words))

    check_three_sessions(talk, script, users)
    assert list_said(client, users.alice).count(FACT) == 1
