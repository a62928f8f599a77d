"""An agent of each framework, driven by a scripted model: three sessions, two users. What the first
session said is used in the third, and nothing of the other user."""

import asyncio
import importlib
import re
import warnings
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
from tests.strandline.adapters.conftest import ROOT, Users
from tests.strandline.adapters.messages_server import MessagesServer


@pytest.fixture
def script() -> Script:
    return Script()


def test_adapter_agent_of_langgraph(client: Strandline, script: Script, users: Users) -> None:
    from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langgraph.checkpoint.memory import InMemorySaver

    from strandline.adapters import langgraph_agents

    class Model(FakeMessagesListChatModel):
        """LangChain's own fake, which answers by the script."""

        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self

        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
            text = script.answer("\n".join(message.text for message in messages))
            calls: list[Any] = []
            if messages[-1].text == FACT:
                calls = [{"name": "save_memory", "args": {"text": FACT}, "id": "call_0"}]
            message = AIMessage("" if calls else text, tool_calls=calls)
            return ChatResult(generations=[ChatGeneration(message=message)])

    def of_run(namespace: object, config: Any) -> list[str]:
        return [f"user:{config['configurable']['user_id']}", "agent:helper"]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its move to another package
        make_agent: Any = importlib.import_module("langgraph.prebuilt").create_react_agent
        agent = make_agent(
            Model(responses=[]),
            langgraph_agents.make_memory_tools(participants=of_run, client=client),
            pre_model_hook=langgraph_agents.memory_context_node(participants=of_run, client=client),
            post_model_hook=langgraph_agents.remember_messages_node(
                participants=of_run, client=client
            ),
            checkpointer=InMemorySaver(),
        )

    def talk(user: str, session: str, words: str) -> str:
        config: Any = {"configurable": {"thread_id": session, "user_id": user}}
        return agent.invoke({"messages": [("user", words)]}, config)["messages"][-1].text

    check_three_sessions(talk, script, users)
    said = list_said(client, users.alice)
    assert said.count(FACT) == 2, "what she said, and what the agent saved"
    assert said.count(QUESTION) == 1


def test_adapter_agent_of_strands(client: Strandline, script: Script, users: Users) -> None:
    strands: Any = importlib.import_module("strands")
    memory: Any = importlib.import_module("strands.memory")
    sessions: Any = importlib.import_module("strands.session.repository_session_manager")
    models: Any = importlib.import_module("strands.models.model")
    from strandline.adapters.strands import StrandlineMemoryStore
    from strandline.adapters.strands_sessions import StrandlineSessionRepository

    class Model(models.Model):
        """Strands ships no fake: this one answers by the script."""

        def update_config(self, **config: Any) -> None: ...

        def get_config(self) -> dict[str, Any]:
            return {}

        def structured_output(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

        async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            text = script.answer(messages)
            yield {"messageStart": {"role": "assistant"}}
            yield {"contentBlockDelta": {"delta": {"text": text}}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "end_turn"}}

    async def run(user: str, session: str, words: str) -> str:
        store = StrandlineMemoryStore(user=user, agent="helper")
        manager = memory.MemoryManager(stores=[store])
        repository = StrandlineSessionRepository(user=user, agent="helper", client=client)
        agent = strands.Agent(
            model=Model(),
            memory_manager=manager,
            session_manager=sessions.RepositorySessionManager(
                session, session_repository=repository
            ),
            callback_handler=None,
        )
        result = await agent.invoke_async(words)
        await manager.flush()
        await store.aclose()
        return str(result).strip()

    def talk(user: str, session: str, words: str) -> str:
        return asyncio.run(run(user, session, words))

    check_three_sessions(talk, script, users)
    assert talk(users.alice, f"three-{users.alice}", "Thank you.")
    assert QUESTION in script.prompts[-1], "the session goes on"


def test_adapter_agent_of_openai_agents(client: Strandline, script: Script, users: Users) -> None:
    agents: Any = importlib.import_module("agents")
    testing: Any = importlib.import_module("agents.testing")
    types: Any = importlib.import_module("openai.types.responses")
    from strandline.adapters.openai_agents import StrandlineSession

    def respond(call: Any) -> Any:
        text = script.answer([call.system_instructions, call.input])
        part = types.ResponseOutputText(text=text, type="output_text", annotations=[])
        message = types.ResponseOutputMessage(
            id=f"msg_{len(script.prompts)}",
            content=[part],
            role="assistant",
            status="completed",
            type="message",
        )
        return [message]

    async def run(user: str, session: str, words: str) -> str:
        # The SDK's sessions are conversations: what earlier ones said comes with the instructions.
        known = client.context(words, user=user, agent="helper").text
        model = testing.ScriptedModel([testing.ModelStep.respond(respond)])  # the SDK's own fake
        agent = agents.Agent(name="helper", instructions=known, model=model)
        kept = StrandlineSession(session, user=user, agent="helper")
        config = agents.RunConfig(tracing_disabled=True)
        result = await agents.Runner.run(agent, words, session=kept, run_config=config)
        await kept.aclose()
        return str(result.final_output)

    def talk(user: str, session: str, words: str) -> str:
        return asyncio.run(run(user, session, words))

    check_three_sessions(talk, script, users)
    assert talk(users.alice, f"three-{users.alice}", "Thank you.")
    assert QUESTION in script.prompts[-1], "the session goes on"
    assert list_said(client, users.alice).count(FACT) == 1


def test_adapter_agent_of_pydantic_ai(client: Strandline, script: Script, users: Users) -> None:
    pydantic_ai: Any = importlib.import_module("pydantic_ai")
    messages: Any = importlib.import_module("pydantic_ai.messages")
    function: Any = importlib.import_module("pydantic_ai.models.function")
    from strandline.adapters.pydantic_ai import StrandlineMemory

    def respond(history: Any, info: Any) -> Any:
        text = script.answer([info.instructions, history])
        return messages.ModelResponse([messages.TextPart(text)])

    async def run(user: str, session: str, words: str) -> str:
        memory = StrandlineMemory(user=user, agent="helper")
        model = function.FunctionModel(respond)  # the framework's own fake
        agent = pydantic_ai.Agent(model, capabilities=[memory])
        result = await agent.run(words, conversation_id=session)
        await memory.aclose()
        return str(result.output)

    def talk(user: str, session: str, words: str) -> str:
        return asyncio.run(run(user, session, words))

    check_three_sessions(talk, script, users)
    assert list_said(client, users.alice).count(FACT) == 1


def test_adapter_agent_of_mem0(client: Strandline, script: Script, users: Users) -> None:
    """The program for mem0 in docs/side-by-side.md, which moves by another import."""
    page = (ROOT / "docs/side-by-side.md").read_text("utf-8")
    (program,) = re.findall(r"^## mem0\n\n```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"ask_model": script.answer}
    moved = program.replace("from mem0 import", "from strandline.adapters.mem0 import")
    assert moved != program
    exec(moved, names)  # noqa: S102
    check_three_sessions(names["answer"], script, users)
    assert list_said(client, users.alice).count(FACT) == 1
    names["memory"].close()


def test_adapter_agent_of_claude(client: Strandline, script: Script, users: Users) -> None:
    """Anthropic's tool runner, against a server that plays the Messages API: it looks into its
    directory as Claude does, and notes what is stated."""
    anthropic: Any = importlib.import_module("anthropic")
    from strandline.adapters.claude import StrandlineMemoryTool

    notes = "/memories/notes.md"

    def answer(messages: list[Any]) -> dict[str, Any]:
        words = messages[0]["content"]
        results = [block["content"] for turn in messages[2::2] for block in turn["content"]]
        commands: list[dict[str, Any]] = [{"command": "view", "path": "/memories"}]
        if results and notes in results[0]:
            commands.append({"command": "view", "path": notes})
        if words == FACT:
            commands.append({"command": "create", "path": notes, "file_text": FACT})
        if len(results) < len(commands):
            use = {"type": "tool_use", "id": f"toolu_{len(results)}", "name": "memory"}
            return {
                "content": [{**use, "input": commands[len(results)]}],
                "stop_reason": "tool_use",
            }
        text = script.answer([words, results])
        return {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}

    with MessagesServer(answer) as server:
        claude = anthropic.Anthropic(api_key="none", base_url=server.url)

        def talk(user: str, session: str, words: str) -> str:
            tool = StrandlineMemoryTool(user=user, agent="helper", client=client)
            runner = claude.beta.messages.tool_runner(
                model="scripted",
                max_tokens=100,
                tools=[tool],
                messages=[{"role": "user", "content": words}],
            )
            return str(runner.until_done().content[0].text)

        check_three_sessions(talk, script, users)
        claude.close()
    tools = {str(request["tools"]) for request in server.requests if "tools" in request}
    assert tools == {"[{'type': 'memory_20250818', 'name': 'memory'}]"}
    hits = client.recall(QUESTION, user=users.alice, agent="helper").hits
    assert FACT in str(hits[0].text), "found outside of the tool, too"
