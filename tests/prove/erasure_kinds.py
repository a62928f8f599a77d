"""Events of every kind, with a word in all that a caller may fill; and all that is made of them."""

import importlib
import json
import uuid
from dataclasses import dataclass
from typing import Any

from strandline.local.aws import LocalAws, make_local_client
from strandline.local.lambda_context import LambdaContext
from tests.chains import warm
from tests.chat_service import CHAT, QUERY, SONAS, ScriptedTasks, deliver_turn, use_model
from tests.graph_calls import Graph, entity, fact, topic
from tests.graph_files import export, import_text, tell_entity
from tests.prove.erasure_stores import ERASED_WORD, KEPT_WORD, WHO
from tests.strandline.topics.outline import build, fold_all
from tests.support import Gateway, ScratchDatabase, planned_items, user_message
from tests.uploads import cid_of, citing, upload_file

EVENTS = "/api/v1/events"
PLACES = {
    *("events", "event_keys", "event_search", "event_texts", "sessions", "uploads", "decisions"),
    *("lanes", "chains", "chain_versions", "topic_nodes", "graph_nodes", "graph_edges"),
    *("graph_observations", "topic_fields", "topic_field_revisions", "turns", "pg_stats"),
}
"""Where the word lies, of every kind of event, before it is erased."""
HELD_IDS = {
    *("events", "erased_events", "erased_keys", "erasures", "memory_edges", "audit_log"),
    *("recall_answers", "reference_answers"),
}
"""Tables that may name the id of an erased event; what they hold of it says nothing."""


@dataclass(frozen=True)
class Kinds:
    """Stores events of every kind, once for each number."""

    gateway: Gateway
    base: ScratchDatabase
    key: str

    def store(self, n: int, quiet_count: int) -> None:
        """So many events that stay, and one of each kind that bears the word."""
        word = f"{ERASED_WORD}{n}"
        quiet = [
            user_message(f"{KEPT_WORD} {n} {m}: the tide comes at {m}.", *WHO, session_id=f"s{n}")
            for m in range(quiet_count)
        ]
        rest = self.say(quiet)
        self._tell_messages(word, f"s{n}", rest[0])
        self._upload(word)
        self._tell_sessions(word)
        self._state_graph(word)
        self._ask(word)

    def say(self, bodies: list[dict[str, object]]) -> list[str]:
        """Append in batches; gives the ids."""
        ids: list[str] = []
        for first in range(0, len(bodies), 250):
            body = {"events": bodies[first : first + 250]}
            answer = self.call("POST", f"{EVENTS}/batch", body)
            assert answer["failed"] == 0, answer
            ids += [item["event"]["event_id"] for item in answer["results"]]
        return ids

    def call(self, method: str, path: str, body: object = None, **more: Any) -> Any:
        """A call that is taken; its answer."""
        reply = self.gateway.call(method, path, body, key=self.key, **more)
        assert reply.status in (200, 201, 202), (path, reply.text)
        return reply.body

    def derive(self) -> None:
        """All that is made of events: chains, a graph and its analysis, two snapshots, recorded
        answers, an export; a lane that is open, and a build that has not ended."""
        fold_all(self.gateway, self.base)
        warm(self.base)
        self.gateway.run_job("promoter")
        self.gateway.run_job("analytics", "acme")
        build(self.gateway)
        for path in ("recall", "references/query", "context", "recall"):
            body = {"query": f"sister {ERASED_WORD}0", "participants": [WHO[0]]}
            assert ERASED_WORD in json.dumps(self.call("POST", f"/api/v1/{path}", body)), path
        self.gateway.run_job("archiver")
        late = [f"My sister {ERASED_WORD}0 sails again, {n}." for n in range(3)]
        self.say([user_message(text, *WHO, session_id=f"{ERASED_WORD}-open") for text in late])
        self.base.rows("update scope_work set due_at = now()")
        self.gateway.sweep()
        build(self.gateway)
        export(self.gateway, self.key, *WHO)
        self.say([user_message(f"{ERASED_WORD}0 is not folded yet.", *WHO)])
        begin_build()

    def bearers(self) -> list[str]:
        """The ids of the events that bear the word."""
        rows = self.base.rows(
            "select event_id::text from events e where strpos(lower(e::text), %s) > 0", ERASED_WORD
        )
        return [event_id for (event_id,) in rows]

    def _tell_messages(self, word: str, session_id: str, rest: str) -> None:
        common = {"metadata": {word: [word]}, "channel": word}
        message = self.say(
            [
                user_message(
                    f"My sister {word} lives in {word.title()}.",
                    *WHO,
                    **common,
                    session_id=word,
                    source_event_key=f"{word} key",
                    mime_type=f"text/{word}",
                    edges=[{"event_id": rest, "weight": 0.5}],
                ),
                user_message(f"{word} is late, and so is the tide.", *WHO, session_id=session_id),
                user_message(f"{word} " * 7000, *WHO, metadata={"n": word}),
                {
                    "participants": list(WHO),
                    "role": "agent",
                    "type": "observation",
                    "content": f"The tool returned {word}.",
                    "metadata": {"workflow_id": word},
                },
                {
                    "participants": list(WHO),
                    "role": "agent",
                    "parts": [{"content": f"{word} says {n}.", "model": word} for n in range(2)],
                    "session_id": word,
                },
            ]
        )
        citing_it = user_message(f"{KEPT_WORD}: the tide was late.", *WHO, session_id=session_id)
        self.say([citing_it | {"edges": [{"event_id": message[0], "weight": 0.9}]}])
        body = user_message(f"My sister {word} is back.", *WHO, source_event_key=f"{word} insert")
        self.call("POST", "/api/v1/insert", body | {"recall": {"limit": 2}})

    def _upload(self, word: str) -> None:
        """A text and a picture, each with a name of its own and one in its event."""
        for data, mime_type in (
            (f"{word} in a file.".encode(), "text/plain"),
            (b"\x89PNG\r\n" + word.encode(), "image/png"),
        ):
            upload_file(self.gateway, self.key, data, mime_type=mime_type, name=f"{word}.upload")
            fields = {"name": f"{word}.txt", "source_event_key": f"{word} {mime_type}"}
            self.call("POST", EVENTS, citing(cid_of(data), *WHO, **fields))

    def _tell_sessions(self, word: str) -> None:
        """One that goes on and one that has ended, with data of the caller."""
        for name in (f"{word}-begun", f"{word}-ended"):
            upload = {"session_id": name, "participants": WHO, "metadata": {word: word}}
            self.call("POST", "/api/v1/sessions", upload)
            both = {"user_message": f"{word}?", "agent_response": f"{word}!", "metadata": {word: 1}}
            keyed_event = {"source_event_key": f"{word} {name}"}
            self.call("POST", f"/api/v1/sessions/{name}/interactions", both | keyed_event)
            event = {"role": "user", "content": f"{word} goes on."}
            self.call("POST", f"/api/v1/sessions/{name}/events", event)
        self.call("DELETE", f"/api/v1/sessions/{word}-ended")

    def _state_graph(self, word: str) -> None:
        """Statements of every kind, what is said of them later, and a file that is taken in."""
        graph = Graph(self.gateway, self.key, WHO)
        ann, ben, lives, plan, race_, boats = graph.create(
            entity(f"{word} Ann", kind="person", ref="ann", description=f"{word} rows"),
            entity(f"{word} Ben", kind="person"),
            fact(
                f"{word} Ann lives in Oslo",
                relationships=[{"edge": "fact_entity", "target": "ann", "nuance": word}],
            ),
            {
                "type": "decision",
                "title": f"Sell {word}",
                "rationale": word,
                "alternatives": [word],
            },
            {"type": "event", "title": f"{word} regatta", "event_date": "2026-05-08T13:56:00Z"},
            topic(f"{word} boats", category="hobby", description=word),
        )
        edge = graph.relate("USES", ann, ben, nuance=word)
        graph.relate("event_decision", race_, plan)
        graph.write("POST", f"edges/{edge['id']}/end", reason=f"{word} is over.")
        graph.write("PATCH", f"nodes/{ben}", description=f"{word} sails")
        replacement_fact = {"content": f"{word} Ann lives in Bergen", "category": "personal"}
        graph.write("POST", f"nodes/{lives}/invalidate", reason=word, replacement=replacement_fact)
        merge = graph.write("POST", "merges", from_id=ben, into_id=ann)
        graph.write("POST", f"merges/{merge['merge_id']}/undo")
        (nearby,) = graph.create(topic(f"{word} harbour"))
        graph.write("POST", "merges", from_id=nearby, into_id=boats)
        for value in ("a", "b"):
            text = {"value": {word: f"{word} {value}"}, "why_changed": word}
            graph.write("POST", f"topics/{boats}/fields/{word}", **text, impact_expected=word)
        event = {"nodes": [entity(f"{word} keyed")]}
        assert graph.send("POST", "nodes", event, request_key=f"{word} once").status == 201
        reply = import_text(self.gateway, self.key, tell_entity(f"{word} imported", WHO))
        assert reply.status == 201, reply.text

    def _ask(self, word: str) -> None:
        """A chat, an answer that waits to be fetched, and a sona with a memory and an act."""
        fold_all(self.gateway, self.base)
        tasks = {name: use_model(ScriptedTasks(), name) for name in ("query", "worker")}
        try:
            message = {
                "message": f"Where does my sister {word} live?",
                "participants": WHO,
                "session_id": f"{word}-chat",
                "metadata": {word: word},
            }
            once = {"Idempotency-Key": f"{word} chat"}
            reply = self.call("POST", CHAT, message, headers=once)
            use_model(ScriptedTasks("out_of_time"), "query")
            question = {"query": f"Where does {word} live?", "participants": [WHO[0]]}
            turn_id = self.call("POST", QUERY, question)["turn_id"]
            assert deliver_turn(turn_id) == []
        finally:
            for name, before in tasks.items():
                use_model(before, name)
        turn = self.call("GET", f"/api/v1/turns/{turn_id}", query={"participants": WHO[0]})
        assert turn["state"] == "done"
        sona = self.call("POST", SONAS, {"name": "Keeper"})["uuid"]
        active = {"event_ids": [reply["input_id"], reply["answer_id"]]}
        self.call("POST", f"{SONAS}/{sona}/memories", active)
        thread = self.call("GET", f"{SONAS}/{sona}/acts", query={"participants": WHO[0]})
        after = {"after": thread["acts"][-1]["act_id"]} if thread["acts"] else {}
        act = {"event_id": reply["input_id"], **after}
        self.call("POST", f"{SONAS}/{sona}/acts", act)


def begin_build() -> None:
    """A build of topic trees whose worker dies before it has published them."""
    handler = importlib.import_module("functions.builder.handler")
    run_id = str(uuid.uuid4())

    def step(verb: str, **fields: object) -> Any:
        event = {"verb": verb, "run": run_id, "input": {**fields, "job": "builder"}}
        return handler.lambda_handler(event, LambdaContext("builder", 900))

    step("plan", tenant="acme")
    for item in planned_items(run_id):
        step("shard", **item)


def queued_messages(aws: LocalAws) -> str:
    """What waits in the queues, dead letters too."""
    sqs = make_local_client("sqs")
    results: list[str] = []
    for url in sqs.list_queues().get("QueueUrls", []):
        while messages := sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=600
        ).get("Messages", []):
            results += [message["Body"].lower() for message in messages]
    del aws
    return "\n".join(results)
