"""Values by namespace and key, as statements of the service: a namespace is a topic of the
knowledge graph, a key a field of it, and each value a revision of the field.

What is read is what the newest revision holds. Earlier ones stay in the log, and no search and no
context has them. A value that is removed is erased with all its revisions where the key has the
right, else a revision without a value (a tombstone) ends it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.adapters.event_batches import erase_events
from strandline.adapters.namespace_topics import NOBODY, Namespace, NamespaceTopics, choose_role
from strandline.adapters.step_runners import ask
from strandline.adapters.value_names import (
    decode_key,
    encode_key,
    encode_namespace,
    is_key_in_value,
)
from strandline.client import answers
from strandline.client.errors import (
    ForbiddenError,
    InvalidFieldError,
    NotFoundError,
    StateConflictError,
)
from strandline.client.graph import GraphReadVerbs
from strandline.client.graph_statements import GraphWriteVerbs
from strandline.client.memory import MemoryVerbs
from strandline.client.verb_declarations import Steps

logger = logging.getLogger(__name__)

_PAGE = 500
"""Fields, or revisions of one field, that a request reads."""
_MOST_SCORED = 100
_MAX_QUERY_CHARS = 8000


@dataclass(frozen=True)
class KeyedValue:
    """What a key of a namespace holds."""

    namespace: Namespace
    key: str
    value: Any
    created_at: datetime
    """When it was first put, after it was last removed. As of `updated_at` until
    `KeyedValues.with_creation_time` was asked."""
    updated_at: datetime
    event_id: UUID
    """The statement."""
    revision: int
    is_scored: bool
    """Whether a search gives it a score."""


class KeyedValues:
    """Values of one kind, such as `langgraph`, in one service. All methods are procedures of
    requests (`run_steps`), and raise ServiceError. `participants` are everybody whose memory it
    is: they make the scope of what is put, and on their behalf it is read."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._topics = NamespaceTopics(kind)
        self._has_told_of_tombstones = False

    def read_value(
        self, participants: Sequence[str], namespace: Namespace, key: str
    ) -> Steps[KeyedValue | None]:
        """What a key holds, with the time of its creation; None for nothing."""
        history = yield from self.read_history(participants, namespace, key, 1)
        value = history and self.to_value(namespace, history)
        if not value:
            return None
        return (yield from self.with_creation_time(participants, value))

    def with_creation_time(
        self, participants: Sequence[str], value: KeyedValue
    ) -> Steps[KeyedValue]:
        """The value with the time of its creation, as the newest 500 revisions of its key show
        it."""
        if value.revision == 1:
            return value
        history = yield from self.read_history(participants, value.namespace, value.key, _PAGE)
        created_at = value.updated_at
        for one in history.history if history else ():
            if one.recorded_at <= value.updated_at:  # others were put since it was read
                if one.value is None:
                    break
                created_at = one.recorded_at
        return replace(value, created_at=created_at)

    def put_value(
        self,
        participants: Sequence[str],
        namespace: Namespace,
        key: str,
        value: Any,
        *,
        is_scored: bool = True,
        idempotency_key: str | None = None,
    ) -> Steps[answers.StoredRevision]:
        """Put a value under a key, once, however often the request is repeated. Raises ValueError
        for one that is too large or that JSON cannot express."""
        field = encode_key(key)
        if is_key_in_value(field) and value is not None:
            value = {"key": key, "value": value}
        kind = self._kind if is_scored else f"{self._kind}-unscored"
        for find_topics in (self._topics.find_topics, self._topics.create_topic):
            for topic in (yield from find_topics(participants, namespace)):
                call = GraphWriteVerbs.set_field.call(
                    NOBODY,
                    topic,
                    field,
                    value,
                    participants=participants,
                    role=choose_role(participants),
                    field_type=kind,
                    idempotency_key=idempotency_key,
                )
                try:
                    outcome = yield from ask(call)
                except (StateConflictError, NotFoundError):
                    continue  # it belongs to more participants than these, or is gone
                except InvalidFieldError as error:
                    if error.field == "value":
                        raise ValueError(f"{'/'.join(namespace)}, {key}: {error}") from error
                    raise
                self._topics.set_own_topic(participants, namespace, topic)
                return outcome
        raise NotFoundError(f"The topic of {'/'.join(namespace)} is gone as soon as it is made.")

    def remove_value(
        self, participants: Sequence[str], namespace: Namespace, key: str
    ) -> Steps[bool]:
        """Remove what a key holds: whether there was anything. A tombstone hides it at once; then
        all revisions in these participants' own scope are erased, where the key may. Repeated after
        an error, it erases what an earlier attempt hid."""
        history = yield from self.read_history(participants, namespace, key, 1)
        if history is None or history.current is None:
            return False
        has_value = history.current.value is not None
        tombstone: answers.RevisionOut = history.current
        if has_value:
            tombstone = yield from self.put_value(participants, namespace, key, None)
        try:
            yield from self._erase_before(participants, namespace, key, tombstone)
        except ForbiddenError:
            self._tell_of_tombstones()
        return has_value

    def _erase_before(
        self,
        participants: Sequence[str],
        namespace: Namespace,
        key: str,
        tombstone: answers.RevisionOut,
    ) -> Steps[None]:
        """Erase the revisions that a tombstone ended, and then the tombstone itself, unless it
        hides a value that belongs to more participants."""
        while history := (yield from self.read_history(participants, namespace, key, _PAGE)):
            own = [one for one in history.history if one.topic_id == tombstone.topic_id]
            ids = [one.event_id for one in own if one.revision < tombstone.revision]
            is_last = len(history.history) == history.revisions
            if is_last and len(own) == len(history.history):
                ids.append(tombstone.event_id)
            if ids:
                yield from erase_events(ids)
            if is_last or not ids:
                return

    def _tell_of_tombstones(self) -> None:
        if not self._has_told_of_tombstones:
            self._has_told_of_tombstones = True
            logger.warning(
                "this key has no right to erase: what is deleted is hidden by a tombstone, and its"
                " history stays in the log"
            )

    def list_values(
        self, participants: Sequence[str], prefix: Namespace
    ) -> Steps[list[KeyedValue]]:
        """What the keys of all namespaces below a prefix hold, the newest first."""
        values: list[KeyedValue] = []
        for namespace, topic in (
            yield from self._topics.list_namespaces_with_topics(participants, prefix)
        ):
            after: str | None = None
            while True:
                page = yield from self._read_fields(participants, topic, after, _PAGE)
                states = page.fields if page else []
                values += filter(None, (self.to_value(namespace, state) for state in states))
                after = page.next_after_field if page else None
                if after is None:
                    break
        return sorted(values, key=lambda value: (value.updated_at, value.event_id), reverse=True)

    def list_namespaces(
        self, participants: Sequence[str], prefix: Namespace
    ) -> Steps[list[Namespace]]:
        """The namespaces below a prefix in which a key holds a value, in order."""
        namespaces: list[Namespace] = []
        for namespace, topic in (
            yield from self._topics.list_namespaces_with_topics(participants, prefix)
        ):
            after: str | None = None
            while True:
                page = yield from self._read_fields(participants, topic, after, _PAGE)
                states = page.fields if page else []
                if any(self.to_value(namespace, state) for state in states):
                    namespaces.append(namespace)
                    break
                after = page.next_after_field if page else None
                if after is None:
                    break
        return sorted(namespaces)

    def score_values(
        self, participants: Sequence[str], namespaces: Collection[Namespace], query: str
    ) -> Steps[dict[UUID, float]]:
        """How relevant the statements of values are for a question, from 0 to 1: the 100 most
        relevant ones, of one namespace alone where only one is named."""
        revise = {"field_type": self._kind}
        if len(namespaces) == 1:
            revise["topic"] = encode_namespace(self._kind, *namespaces)
        answer = yield from ask(
            MemoryVerbs.recall.call(
                NOBODY,
                query[:_MAX_QUERY_CHARS],
                participants=participants,
                type="statement",
                metadata={"graph": {"revise": revise}},
                min_relevance=0,
                breadth=False,
                limit=_MOST_SCORED,
            )
        )
        return {hit.event_id: hit.relevance or 0.0 for hit in answer.hits}

    # Fields ---------------------------------------------------------------------------------------

    def read_history(
        self, participants: Sequence[str], namespace: Namespace, key: str, limit: int
    ) -> Steps[answers.FieldHistory | None]:
        """A key with its newest revisions; None if nothing was ever put under it."""
        for topic in (yield from self._topics.find_topics(participants, namespace))[:1]:
            call = GraphReadVerbs.field.call(
                NOBODY, topic, encode_key(key), participants=participants, limit=limit
            )
            with contextlib.suppress(NotFoundError):
                return (yield from ask(call))
        return None

    def _read_fields(
        self, participants: Sequence[str], topic: str, after: str | None, limit: int
    ) -> Steps[answers.TopicFields | None]:
        call = GraphReadVerbs.fields.call(
            NOBODY, topic, participants=participants, limit=limit, after_field=after
        )
        with contextlib.suppress(NotFoundError):  # it was erased since it was listed
            return (yield from ask(call))
        return None

    def to_value(self, namespace: Namespace, state: answers.FieldState) -> KeyedValue | None:
        """What a field holds; None for nothing."""
        current = state.current
        if current is None or current.value is None:
            return None
        is_wrapped = is_key_in_value(state.field)
        return KeyedValue(
            namespace=namespace,
            key=current.value["key"] if is_wrapped else decode_key(state.field),
            value=current.value["value"] if is_wrapped else current.value,
            created_at=current.recorded_at,
            updated_at=current.recorded_at,
            event_id=current.event_id,
            revision=current.revision,
            is_scored=state.field_type == self._kind,
        )
