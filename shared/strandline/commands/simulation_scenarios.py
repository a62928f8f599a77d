"""Thirteen scenarios, from a session to an archived chain, played through the API.

Each returns a description of what it observed, raises UnmetExpectation if the service behaved
differently, and MissingRight if the credential does not allow the scenario.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict, TypeVar

from strandline.client import answers
from strandline.client.clients import Strandline
from strandline.client.errors import ForbiddenError, KeyConflictError, StateConflictError
from strandline.client.sessions import Session

T = TypeVar("T")

_PAUSE = 0.3
_PAYLOADS, _PAYLOAD_BYTES, _UPLOADERS = 24, 300_000, 8
_COLD = {"archive_days": 0.0, "freezing": 0.9, "promote": 0.95, "heat_hours": 0.01}
"""Thresholds under which a chain is cold as soon as it is closed."""
_BOAT = (
    ("The Petrel's engine coughs when it is cold.", "Look at the fuel filter of the engine first."),
    ("The fuel filter is full of water.", "Drain the filter and check the seal of the tank's cap."),
    ("The seal of the tank is cracked.", "Replace the seal, or water gets into the fuel again."),
    ("The engine runs smoothly now.", "Run the engine under load for ten minutes to be sure."),
)
_TAXES = (
    ("Which receipts does my tax return need?", "Those for travel, books and the office rent."),
    ("Can I deduct the train to Bergen from my taxes?", "Yes, with the ticket as a receipt."),
    ("When is the tax return due?", "On the last day of April, or later if you ask for it."),
)
"""Another topic, which ends the first."""


class UnmetExpectation(Exception):
    """What a scenario expected and did not find."""


class MissingRight(Exception):
    """Why a scenario cannot be played with this credential."""


class ScenarioParticipants(TypedDict):
    """Who takes part in a scenario's conversation."""

    user: str
    agent: str


@dataclass
class ScenarioEnvironment:
    """Where the scenarios are played."""

    client: Strandline
    operator: Strandline | None
    """A client that may change the tenant's thresholds; None where there is none."""
    tenant: str | None
    """The tenant of the simulation, if it has one of its own."""
    run: str
    """A name that no other run has."""
    patience: float
    """Seconds to wait for what happens in the background."""
    key_id: str = ""
    """The key that was made for the simulation."""
    topics: list[answers.ChainOut] = field(default_factory=list["answers.ChainOut"])
    """The chains of the conversation about the boat, once there are any."""

    def close(self) -> None:
        """Revoke the key that was made for the simulation. Raises ServiceError."""
        if self.operator is not None and self.tenant is not None:
            self.client.close()
            self.operator.admin.revoke_key(self.tenant, self.key_id)

    def make_participants(self, scenario: str) -> ScenarioParticipants:
        """The two who talk in a scenario: nobody else's memory is touched."""
        return {"user": f"{self.run}-{scenario}", "agent": "simulator"}

    def make_session(self, scenario: str) -> Session:
        """The conversation of a scenario, begun or joined."""
        return self.client.session(f"{self.run}-{scenario}", **self.make_participants(scenario))

    def wait_for(self, find: Callable[[], T | None], what: str) -> T:
        """What `find` gives as soon as it gives something. Raises UnmetExpectation when patience
        ends."""
        deadline = time.monotonic() + self.patience
        while not (result := find()):
            if time.monotonic() > deadline:
                raise UnmetExpectation(f"{what}: not within {self.patience:g} s")
            time.sleep(_PAUSE)
        return result


@dataclass(frozen=True)
class Scenario:
    """One of the thirteen."""

    name: str
    play: Callable[[ScenarioEnvironment], str]


def expect(condition: bool, sentence: str) -> None:
    """Raises UnmetExpectation with the sentence unless the condition holds."""
    if not condition:
        raise UnmetExpectation(sentence)


def begin_session_twice(world: ScenarioEnvironment) -> str:
    """A session begins, is found, and beginning it again joins it."""
    members = world.make_participants("session")
    with world.make_session("session") as session:
        first = session.get()
        expected = [f"agent:{members['agent']}", f"user:{members['user']}"]
        expect(first.participants == expected, f"its participants are {first.participants}")
    with world.make_session("session") as again:
        expect(again.scope_id == str(first.scope_id), "the same name began another session")
    session_ids = [one.session_id for one in world.client.sessions(**members)]
    expect(session_ids == [session.session_id], f"the list of sessions is {session_ids}")
    return "two participants; the same name joins it again"


def store_message_with_answer(world: ScenarioEnvironment) -> str:
    """A user's message and the agent's answer are stored together and in order."""
    with world.make_session("interaction") as session:
        turn = session.add_turn("Is the Petrel free on Friday?", "Yes, from nine to three.")
    members = world.make_participants("interaction")
    events = [*world.client.events(turn.user.scope_id, **members)]
    roles = [(event.seq, event.role) for event in events]
    expect(roles == [(1, "user"), (2, "agent")], f"the log holds {roles}")
    return "two events, number 1 and 2 of their scope"


def store_each_event_type(world: ScenarioEnvironment) -> str:
    """Messages, thoughts, actions and observations are stored as what they are."""
    with world.make_session("kinds") as session:
        receipts = [
            session.add("Check the anchorage.", role="user", type="message"),
            session.add("The forecast decides.", role="agent", type="thought"),
            session.add("forecast(place='Brill')", role="agent", type="action"),
            session.add("Wind 12 knots, west.", role="agent", type="observation"),
        ]
    members = world.make_participants("kinds")
    kinds = [world.client.get(receipt.event_id, **members).type for receipt in receipts]
    expect(kinds == ["message", "thought", "action", "observation"], f"they are {kinds}")
    return ", ".join(kinds)


def read_short_term_memory(world: ScenarioEnvironment) -> str:
    """Of twelve messages the ten newest are in short-term memory, newest first."""
    with world.make_session("window") as session:
        for number in range(12):
            session.add(f"Reading number {number} of the gauge.")
        recent = [one.event.seq for one in session.working_memory().recent]
    expect(recent == [*range(12, 2, -1)], f"short-term memory holds {recent}")
    return "10 of 12 events, newest first"


def coalesce_workflow_events(world: ScenarioEnvironment) -> str:
    """Events of one workflow are one entry of short-term memory."""
    with world.make_session("workflow") as session:
        for number in range(3):
            session.add(
                f"Step {number} done.",
                role="agent",
                type="observation",
                metadata={"workflow_id": "refit"},
            )
        recent = session.working_memory().recent
    counts = [one.count for one in recent]
    expect(counts == [3], f"the entries stand for {counts} events")
    return "3 events in one entry"


def append_twice_under_one_key(world: ScenarioEnvironment) -> str:
    """The same key stores an event once, and refuses another event."""
    members = world.make_participants("once")
    first, second = (
        world.client.add("The buoy is out.", source_event_key="log-1", **members) for _ in range(2)
    )
    expect(first.event_id == second.event_id, "a repeated request stored a second event")
    try:
        world.client.add("The buoy is in.", source_event_key="log-1", **members)
    except KeyConflictError:
        return "one event; another one under its key is refused"
    raise UnmetExpectation("another event was stored under the same key")


def recall_right_after_append(world: ScenarioEnvironment) -> str:
    """What was just said is recalled by the next request."""
    members = world.make_participants("recall")
    sentence = "The key of the harbour office hangs behind the lifebuoy."
    receipt = world.client.add(sentence, **members)
    hits = world.client.recall("Where is the key of the harbour office?", **members).hits
    expect(bool(hits) and hits[0].event_id == receipt.event_id, f"{len(hits)} other hits")
    return f"hits: {len(hits)}; it is the first"


def form_chain_of_finished_topic(world: ScenarioEnvironment) -> str:
    """When the conversation moves on, its topic becomes a chain."""
    with world.make_session("topics") as session:
        for user, agent in (*_BOAT, *_TAXES):
            session.add_turn(user, agent)
        world.topics = world.wait_for(lambda: [*session.chains()], "a chain of the first topic")
    chain = world.topics[-1]
    expect(chain.first_seq == 1, f"the first chain begins with event {chain.first_seq}")
    return (
        f"“{chain.topic or chain.summary}”: {chain.event_count} events, closed by {chain.closed_by}"
    )


def flush_long_topic(world: ScenarioEnvironment) -> str:
    """Where one topic goes on and on, its older half becomes a chain."""
    with world.make_session("flush") as session:
        for number in range(26):
            session.add(
                f"Knot {number}: tie the rope to the mooring.", metadata={"workflow_id": "knots"}
            )

        def find() -> list[answers.ChainOut]:
            return [c for c in session.chains(include="all") if c.closed_by == "force"]

        chain = world.wait_for(find, "a chain of the older half")[-1]
    return f"events {chain.first_seq} to {chain.last_seq} of 26"


def search_chain_and_context(world: ScenarioEnvironment) -> str:
    """A question finds the chain that answers it, and the context shows it."""
    _require_formed_chains(world)
    with world.make_session("topics") as session:
        hits = world.wait_for(
            lambda: session.search("What was wrong with the engine?").hits, "a chain that answers"
        )
        chain = hits[0].chain
        is_right = chain.first_seq <= 2 * len(_BOAT)
        expect(is_right, f"the best chain begins with event {chain.first_seq}")
        text = session.context("What was wrong with the engine?").text
    expect("filter" in text or "seal" in text, "the text for the prompt says nothing of it")
    return f"chains found: {len(hits)}; {len(text)} characters for the prompt"


def recompute_chain_heat(world: ScenarioEnvironment) -> str:
    """A chain's heat is its base times what is retained, by the formula."""
    _require_formed_chains(world)
    with world.make_session("topics") as session:
        heats = [*session.heat()]
    expect(bool(heats), "no chain has a heat")
    for heat in heats:
        importance = heat.weight_importance * heat.importance
        base = min(1.0, importance + heat.weight_density * heat.density)
        retention = math.exp(-heat.hours_since_access / (heat.tau_hours * heat.strength))
        close = math.isclose(heat.heat, base * retention, rel_tol=1e-3, abs_tol=1e-6)
        expect(close, f"{heat.heat:.4f} is not {base:.4f} times {retention:.4f}")
    return f"{heats[-1].heat:.3f} = {heats[-1].base:.3f} x {heats[-1].retention:.3f}"


def upload_many_payloads(world: ScenarioEnvironment) -> str:
    """Many payloads at once come back as they were."""
    members = world.make_participants("payloads")

    def put(number: int) -> bool:
        data = hashlib.shake_256(f"{world.run}-{number}".encode()).digest(_PAYLOAD_BYTES)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"payload-{number}.bin"
            file.write_bytes(data)
            blob = world.client.upload(file, **members).blob
        return blob is not None and world.client.block(blob.cid, **members) == data

    with ThreadPoolExecutor(_UPLOADERS) as pool:
        same = sum(pool.map(put, range(_PAYLOADS)))
    expect(same == _PAYLOADS, f"{_PAYLOADS - same} of {_PAYLOADS} are not what was uploaded")
    megabytes = _PAYLOADS * _PAYLOAD_BYTES / 1e6
    return f"{_PAYLOADS} payloads, {megabytes:.1f} MB, from {_UPLOADERS} threads"


def archive_cold_chain(world: ScenarioEnvironment) -> str:
    """A cold chain is archived: lists leave it out, its events are still recalled."""
    if world.operator is None or world.tenant is None:
        raise MissingRight("needs a key with the right operator, which may lower the thresholds")
    world.operator.admin.update_tenant(world.tenant, tuning=_COLD)
    with world.make_session("archive") as session:
        for user, agent in (*_BOAT, *_TAXES):
            session.add_turn(user, agent)

        def is_in(status: str) -> answers.ChainOut | None:
            chains = session.chains(include="all")
            return next((c for c in chains if c.status == status and c.first_seq == 1), None)

        chain = world.wait_for(lambda: is_in("active") or is_in("archived"), "a chain")
        with suppress(StateConflictError):  # it runs already
            world.client.admin.start_job("archiver")
        world.wait_for(lambda: is_in("archived"), "the chain in the archive")
        active_ids = [one.chain_id for one in session.chains()]
        expect(chain.chain_id not in active_ids, "the list of active chains still has it")
    members = world.make_participants("archive")
    hits = world.client.recall("When does the engine cough?", **members).hits
    expect(any(hit.event_id in chain.event_ids for hit in hits), "its events are not recalled")
    return f"{chain.event_count} events out of mid-term memory, still recalled"


def _require_formed_chains(world: ScenarioEnvironment) -> None:
    expect(bool(world.topics), "there is no chain: the scenario that forms it did not pass")


SCENARIOS: Sequence[Scenario] = (
    Scenario("a session begins", begin_session_twice),
    Scenario("an interaction is stored", store_message_with_answer),
    Scenario("events of every kind", store_each_event_type),
    Scenario("short-term memory", read_short_term_memory),
    Scenario("a workflow is coalesced", coalesce_workflow_events),
    Scenario("a retry stores nothing twice", append_twice_under_one_key),
    Scenario("recall of what was just said", recall_right_after_append),
    Scenario("a topic becomes a chain", form_chain_of_finished_topic),
    Scenario("a long topic is flushed", flush_long_topic),
    Scenario("mid-term recall", search_chain_and_context),
    Scenario("heat", recompute_chain_heat),
    Scenario("payloads under load", upload_many_payloads),
    Scenario("a cold chain is archived", archive_cold_chain),
)


def prepare_environment(client: Strandline, run: str, patience: float) -> ScenarioEnvironment:
    """With an operator's key a tenant of the simulation's own, else the credential's. Raises
    ServiceError."""
    tenant = run[:63]
    try:
        client.admin.create_tenant(tenant)
    except ForbiddenError:
        return ScenarioEnvironment(client, None, None, run, patience)
    key = client.admin.create_key(tenant, rights=["read", "write", "admin"], label="simulation")
    inner = Strandline(client.connection.settings.url, key.token)
    return ScenarioEnvironment(inner, client, tenant, run, patience, key.key_id)
