"""The topics of the knowledge graph in which an adapter keeps values, one for each namespace."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Literal

from strandline.adapters.step_runners import ask, read_items
from strandline.adapters.value_names import decode_namespace, encode_namespace
from strandline.client import answers
from strandline.client.errors import GoneError
from strandline.client.graph import GraphReadVerbs
from strandline.client.graph_statements import GraphWriteVerbs
from strandline.client.request_building import VerbGroup
from strandline.client.verb_declarations import Steps

NOBODY = VerbGroup()
"""Who asks, in a procedure: its client sends the request."""
_LISTED_NAMESPACES = 50
"""Topics that one search gives; where there are more, all topics in view are listed."""
_TOPICS_PAGE = 100

Namespace = tuple[str, ...]


class NamespaceTopics:
    """The topics of values of one kind. All methods but `set_own_topic` are procedures of
    requests, and raise ServiceError."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._topic_ids: dict[tuple[tuple[str, ...], Namespace], list[str]] = {}
        """By participants and namespace; of the own one alone where it is known."""

    def set_own_topic(self, participants: Sequence[str], namespace: Namespace, topic: str) -> None:
        """Remember which topic is of exactly these participants."""
        self._topic_ids[tuple(participants), namespace] = [topic]

    def find_topics(self, participants: Sequence[str], namespace: Namespace) -> Steps[list[str]]:
        """The topics of a namespace, of all scopes in view; of the own one alone where it is
        known."""
        topic_id = self._topic_ids.get((tuple(participants), namespace))
        if topic_id:
            return topic_id
        name = encode_namespace(self._kind, namespace)
        for node in (yield from self._list_topics_with_name_part(participants, name)):
            if node.name == name:
                self._topic_ids[tuple(participants), namespace] = list(node.members)
                return list(node.members)
        return []

    def create_topic(self, participants: Sequence[str], namespace: Namespace) -> Steps[list[str]]:
        """State the topic of a namespace. All who do it at once state it once."""
        name = encode_namespace(self._kind, namespace)
        digest = hashlib.sha256("\n".join([*participants, name]).encode()).hexdigest()
        for key in (f"namespace-{digest[:32]}", None):
            call = GraphWriteVerbs.add.call(
                NOBODY,
                [{"type": "topic", "name": name}],
                participants=participants,
                role=choose_role(participants),
                idempotency_key=key,
            )
            with contextlib.suppress(GoneError):  # it was erased, and so is stated anew
                return [(yield from ask(call)).nodes[0].id]
        return []

    def list_namespaces_with_topics(
        self, participants: Sequence[str], prefix: Namespace
    ) -> Steps[list[tuple[Namespace, str]]]:
        """The namespaces below a prefix, each with a topic of it."""
        start = encode_namespace(self._kind, prefix)
        namespaces: list[tuple[Namespace, str]] = []
        for node in (yield from self._list_topics_with_name_part(participants, start)):
            namespace = decode_namespace(self._kind, node.name)
            if namespace is not None and namespace[: len(prefix)] == prefix:
                namespaces.append((namespace, node.id))
        return namespaces

    def _list_topics_with_name_part(
        self, participants: Sequence[str], part: str
    ) -> Steps[Sequence[answers.NodeOut]]:
        """The topics whose names contain a text: by a search, or where that is cut, by a list."""
        answer = yield from ask(
            GraphReadVerbs.search.call(
                NOBODY,
                part,
                participants=participants,
                mode="exact",
                types=["topic"],
                limit=_LISTED_NAMESPACES,
            )
        )
        if "cut_by_limit" not in answer.degraded:
            return answer.nodes
        topics = partial(
            GraphReadVerbs.nodes.call,
            NOBODY,
            participants=participants,
            type="topic",
            page_size=_TOPICS_PAGE,
        )
        return (
            yield from read_items(
                topics, lambda page: [node for node in page.nodes if part in node.name]
            )
        )


def choose_role(participants: Sequence[str]) -> Literal["agent"] | None:
    """What an agent takes part in is the agent's word, which is trusted less than a user's."""
    return "agent" if any(name.startswith("agent:") for name in participants) else None
