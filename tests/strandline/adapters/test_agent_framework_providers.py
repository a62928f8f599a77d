"""The context provider and the history provider for Microsoft's Agent Framework. No contract tests
are published: the cases follow the framework's tests of its own providers, which were tried with
these (docs/adapters/agent-framework.md), and the samples of its documentation."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    tool,
)

from strandline import Strandline
from strandline.adapters.agent_framework import (
    StrandlineContextProvider,
    StrandlineHistoryProvider,
)
from strandline.client.errors import InvalidFieldError
from tests.strandline.adapters.conftest import Service, Users, list_texts, lose_first_answer

MESSAGES = [
    Message("user", ["What is", Content.from_data(data=b"abc", media_type="image/png"), "this?"]),
    Message("assistant", [Content.from_text_reasoning(text="Look it up.")]),
    Message("assistant", [Content.from_function_call("c1", "depth", arguments='{"site": "Auk"}')]),
    Message("tool", [Content.from_function_result("c1", result="line\n" * 5_000)]),
    Message("assistant", ["It is 42 metres."], message_id="m1", author_name="pilot"),
    Message("system", ["Be brief."], additional_properties={"_excluded": True}),
    Message("assistant", ["  "]),
    Message("user", []),
]
"""Of each kind."""


class Parrot(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    """A chat client that calls the tool, where there is one, and says aye."""

    def __init__(self) -> None:
        super().__init__()
        self.prompts: list[list[str]] = []

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Any, **kwargs: Any
    ) -> Any:
        self.prompts.append([message.text for message in messages])
        contents: Sequence[Any] = ["Aye."]
        if options.get("tools") and messages[-1].role != "tool":
            contents = [Content.from_function_call("c1", "depth", arguments='{"site": "Auk"}')]

        async def respond() -> ChatResponse:
            return ChatResponse(messages=[Message("assistant", contents)])

        return respond()


@tool(approval_mode="never_require")
def depth(site: str) -> str:
    """The depth of a site."""
    return f"42 metres at {site}"


type Provider = StrandlineContextProvider | StrandlineHistoryProvider


def use(provider: Provider, talk: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Talk in an event loop, and close the connections of a provider."""

    async def run() -> None:
        try:
            await talk()
        finally:
            await provider.aclose()

    asyncio.run(run())


def make_history(users: Users, **options: Any) -> StrandlineHistoryProvider:
    return StrandlineHistoryProvider(user=users.alice, agent="helper", **options)


def to_dicts(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [message.to_dict() for message in messages]


def test_agent_framework_history_gives_messages_back(users: Users, client: Strandline) -> None:
    history, name = make_history(users), f"tour-{users.alice}"

    async def talk() -> None:
        assert await history.get_messages(name) == []
        await history.save_messages(name, [])
        await history.save_messages(name, MESSAGES[:3])
        await history.save_messages(name, MESSAGES[3:])
        assert to_dicts(await history.get_messages(name)) == to_dicts(MESSAGES)
        assert await history.get_messages(f"other-{users.alice}") == []
        with pytest.raises(ValueError, match="session_id: "):
            await history.get_messages(None)

    use(history, talk)
    events = [*client.get_all(user=users.alice, agent="helper")][::-1]
    assert [(event.role, event.type, str(event.content)[:16]) for event in events] == [
        ("user", "message", "What is"), ("agent", "thought", "Look it up."),
        ("agent", "action", 'depth {"site": "'), ("agent", "observation", '{"type": "messag'),
        ("agent", "message", "It is 42 metres."), ("system", "message", "Be brief."),
        ("agent", "message", "message"), ("user", "message", "message"),
    ]  # fmt: skip


def test_agent_framework_history_stores_messages_once(users: Users) -> None:
    history, name = make_history(users), f"tour-{users.alice}"
    with_id = Message("assistant", ["Aye."], message_id="m2")

    async def talk() -> None:
        turn = [Message("user", ["Yes."]), with_id]
        lose_first_answer(history)
        with pytest.raises(ConnectionError):
            await history.save_messages(name, turn)
        await history.save_messages(name, [Message("user", ["Yes."]), with_id])
        assert [one.text for one in await history.get_messages(name)] == ["Yes.", "Aye."]
        await history.save_messages(name, [with_id, Message("user", ["Yes."])])
        assert [one.text for one in await history.get_messages(name)] == ["Yes.", "Aye.", "Yes."]
        await history.save_messages(name, [Message("assistant", ["Nay."], message_id="m2")])
        assert (await history.get_messages(name))[-1].text == "Nay."

    use(history, talk)


@pytest.mark.parametrize("kind", [StrandlineContextProvider, StrandlineHistoryProvider])
def test_agent_framework_provider_knows_replayed_conversation(
    users: Users, client: Strandline, kind: type[Provider]
) -> None:
    """The program hands the whole conversation over at each run, by messages without ids."""
    provider: Any = kind(user=users.alice, agent="helper")
    provider.load_messages = False
    agent: Any = Agent(client=Parrot(), context_providers=[provider])
    session = AgentSession()

    async def talk() -> None:
        whole: list[Message] = [Message("system", ["Be brief."])]
        for words in ("Yes.", "Yes.", "No."):
            whole.append(Message("user", [words]))
            answer = await agent.run(
                [Message(one.role, [one.text]) for one in whole], session=session
            )
            whole += answer.messages
        await agent.run("Yes.", session=session)
        changed = [Message("user", ["Yes!"]), *whole[2:4], Message("user", ["Why?"])]
        await agent.run(changed, session=session)

    use(provider, talk)
    said = [text for role, text, _ in list_texts(client, users.alice) if role != "system"]
    assert said == [
        "Yes.", "Aye.", "Yes.", "Aye.", "No.", "Aye.", "Yes.", "Aye.",
        "Yes!", "Aye.", "Yes.", "Why?", "Aye.",
    ]  # fmt: skip


@pytest.mark.parametrize("may_erase", [True, False])
def test_agent_framework_history_is_cleared(
    service: Service, users: Users, may_erase: bool, caplog: pytest.LogCaptureFixture
) -> None:
    history = make_history(users, key=service.erasing_key if may_erase else service.key)
    name = f"tour-{users.alice}"

    async def talk() -> None:
        await history.clear(name)
        await history.save_messages(name, MESSAGES[4:6])
        await history.clear(name)
        assert await history.get_messages(name) == []
        await history.save_messages(name, MESSAGES[5:6])
        assert len(await history.get_messages(name)) == 1

    with caplog.at_level(logging.WARNING, "strandline"):
        use(history, talk)
    assert len([one for one in caplog.messages if "stays in the log" in one]) == int(not may_erase)


def test_agent_framework_history_continues_session(users: Users) -> None:
    """As the samples have it: the session is written down and read again between two runs."""
    history, parrot = make_history(users), Parrot()
    agent: Any = Agent(client=parrot, tools=[depth], context_providers=[history])

    async def talk() -> None:
        session = agent.create_session()
        await agent.run("How deep is Auk?", session=session)
        restored = AgentSession.from_dict(session.to_dict())
        await agent.run("And Bass?", session=restored)
        stored = await history.get_messages(session.session_id)
        assert [message.role for message in stored] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ] * 2
        assert stored[2].contents[0].result == "42 metres at Auk"

    use(history, talk)
    assert parrot.prompts[-1] == ["How deep is Auk?", "", "", "Aye.", "And Bass?", "", ""]


def test_agent_framework_context_knows_other_sessions(users: Users, client: Strandline) -> None:
    """One provider serves all users: their name is in the provider's state of the session."""

    def choose(session_id: str, state: Any) -> list[str]:
        return [f"user:{state['user']}", "agent:helper"]

    provider, parrot = StrandlineContextProvider(participants=choose), Parrot()
    agent: Any = Agent(client=parrot, tools=[depth], context_providers=[provider])

    def begin(user: str) -> AgentSession:
        session = AgentSession()
        session.state["strandline"] = {"user": user}
        return session

    async def talk() -> None:
        await agent.run("I moor at pier B.", session=begin(users.alice))
        assert len(parrot.prompts) == 2, "a call of the tool between"
        await agent.run("Where do I moor?", session=begin(users.bob))
        assert "pier B" not in str(parrot.prompts[-1])
        await agent.run("Where do I moor?", session=begin(users.alice))
        assert "pier B" in str(parrot.prompts[-1])
        with pytest.raises(ValueError, match="name the user"):
            await agent.run("Where do I moor?", session=begin(""))

    use(provider, talk)
    assert list_texts(client, users.bob) == [
        ("user", "Where do I moor?", True), ("agent", "Aye.", True),
    ]  # fmt: skip


def test_agent_framework_context_stands_beside_history(users: Users, client: Strandline) -> None:
    """Each text is stored once. A run that fails stores nothing."""
    history = make_history(users)
    context = StrandlineContextProvider(user=users.alice, agent="helper", store_messages=False)
    parrot = Parrot()
    agent: Any = Agent(client=parrot, context_providers=[history, context])

    async def talk() -> None:
        await agent.run("I moor at pier B.", session=AgentSession())
        await agent.run("Where do I moor?", session=AgentSession())
        assert "pier B" in str(parrot.prompts[-1])
        parrot.prompts = None  # type: ignore[assignment]
        with pytest.raises(AttributeError):
            await agent.run("Are you there?", session=AgentSession())
        client.add("Hello.", user=users.bob, session_id=f"of-{users.bob}")
        parrot.prompts = []
        with pytest.raises(InvalidFieldError, match="this session has other participants"):
            await agent.run("Hello.", session=AgentSession(session_id=f"of-{users.bob}"))
        await context.aclose()

    use(history, talk)
    assert [text for _, text, _ in list_texts(client, users.alice)] == [
        "I moor at pier B.", "Aye.", "Where do I moor?", "Aye.",
    ]  # fmt: skip


def test_agent_framework_context_stores_retried_run_once(users: Users, client: Strandline) -> None:
    provider = StrandlineContextProvider(user=users.alice, agent="helper")
    agent: Any = Agent(client=Parrot(), context_providers=[provider])
    session = AgentSession()

    async def talk() -> None:
        await agent.run("Yes.", session=session)
        perform = provider.after_run

        async def lose(**fields: Any) -> None:
            lose_first_answer(provider)
            with pytest.raises(ConnectionError):
                await perform(**fields)
            await perform(**fields)

        provider.after_run = lose
        await agent.run("Yes.", session=session)

    use(provider, talk)
    assert [text for _, text, _ in list_texts(client, users.alice)] == ["Yes.", "Aye."] * 2
    for make in (StrandlineContextProvider, StrandlineHistoryProvider):
        with pytest.raises(ValueError, match="name the user"):
            make(agent="helper")
