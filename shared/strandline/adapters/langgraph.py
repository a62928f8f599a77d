"""LangGraph: its store of values on the service, and what puts memory into an agent's prompt.

store = StrandlineStore(user="alice", agent="helper")
graph = builder.compile(store=store)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast
from uuid import uuid4

from langgraph.config import get_config
from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    validate_op_namespace,
)

from strandline.adapters.client_pairs import ClientPair, ParticipantChoice
from strandline.adapters.keyed_values import KeyedValue, KeyedValues
from strandline.adapters.namespace_topics import Namespace
from strandline.adapters.step_runners import run_steps, run_steps_async
from strandline.adapters.value_filters import matches_filter
from strandline.client.clients import AsyncStrandline, Strandline
from strandline.client.verb_declarations import Steps

ChooseParticipants: TypeAlias = Callable[[Namespace, Mapping[str, Any]], Iterable[str]]
"""Says whose memory an operation is about: called with the namespace, or what is known of it (the
prefix of a search), and the configuration of the run, which is empty outside of one. Gives
participants, as in `["user:alice", "agent:helper"]`."""

_AT_ONCE = 8
"""Operations of one asynchronous batch that are under way at once."""


class StrandlineStore(BaseStore):
    """A `BaseStore` on the service: what is put is a statement in the log, which nothing loses.

    `user`, `agent` and `participants` say whose memory it is, or `participants` is a function of
    namespace and configuration. `url` and `key` are by default STRANDLINE_URL and
    STRANDLINE_API_KEY; clients of your own may be given instead. Safe for threads and tasks.

    - `get` and `search` give present values alone. Earlier ones are read by
      `Strandline.graph.field` and in the log.
    - `search` with a query gives values that are relevant first, with a score from 0 to 1; then
      those without one, the newest first. `index=False` leaves a value without a score; any other
      `index` counts all of it.
    - `delete` erases a value with its history where the key has the right `erase`. Without it the
      value is hidden by a tombstone, which a warning says once.
    - A batch reads first and then puts; each put is stored once, whatever is repeated, but a batch
      is not all or none.

    Raises ValueError where no user is named and for a value of more than 15 KiB, and ServiceError.
    """

    __slots__ = ("_choice", "_clients", "_values")

    supports_ttl = False

    def __init__(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | ChooseParticipants | None = None,
        url: str | None = None,
        key: str | None = None,
        client: Strandline | None = None,
        async_client: AsyncStrandline | None = None,
    ) -> None:
        self._choice = ParticipantChoice(user, agent, participants)
        self._clients = ClientPair(url, key, client, async_client)
        self._values = KeyedValues("langgraph")

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations: those that read, then puts, of which the last of a key counts."""
        results, reads, puts = self._plan(ops)
        for place, steps in [*reads, *(put for group in puts for put in group)]:
            results[place] = run_steps(self._clients.blocking, steps)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """As `batch`, some at once; puts of one namespace one after the other."""
        results, reads, puts = self._plan(ops)
        room = asyncio.Semaphore(_AT_ONCE)

        async def run_in_order(group: Sequence[tuple[int, Steps[Result]]]) -> None:
            async with room:
                for place, steps in group:
                    results[place] = await run_steps_async(self._clients.asynchronous, steps)

        await asyncio.gather(*(run_in_order([read]) for read in reads))
        await asyncio.gather(*(run_in_order(group) for group in puts))
        return results

    def close(self) -> None:
        """Close the connections of the blocking client that this store made."""
        self._clients.close()

    async def aclose(self) -> None:
        """Close the connections of both clients that this store made."""
        await self._clients.aclose()

    # Operations -----------------------------------------------------------------------------------

    def _plan(
        self, ops: Iterable[Op]
    ) -> tuple[
        list[Result], list[tuple[int, Steps[Result]]], list[list[tuple[int, Steps[Result]]]]
    ]:
        """A place for each result; the procedures of reads; those of puts by namespace. Raises
        ValueError before anything is sent."""
        operations = list(ops)
        reads: list[tuple[int, Steps[Result]]] = []
        last_puts: dict[tuple[Namespace, str], tuple[int, PutOp]] = {}
        for place, op in enumerate(operations):
            validate_op_namespace(op)
            if isinstance(op, PutOp):
                if op.ttl is not None:
                    raise NotImplementedError("StrandlineStore does not support a time to live")
                last_puts[tuple(op.namespace), op.key] = (place, op)
            else:
                reads.append((place, self._make_read_steps(op)))
        puts: dict[Namespace, list[tuple[int, Steps[Result]]]] = {}
        for (namespace, _), (place, op) in last_puts.items():
            puts.setdefault(namespace, []).append((place, self._make_put_steps(op)))
        return [None] * len(operations), reads, list(puts.values())

    def _make_read_steps(self, op: Op) -> Steps[Result]:
        if isinstance(op, GetOp):
            return self._get(self._list_participants_for_namespace(op.namespace), op)
        if isinstance(op, SearchOp):
            return self._search(self._list_participants_for_namespace(op.namespace_prefix), op)
        if isinstance(op, ListNamespacesOp):
            prefix = _find_common_prefix(op.match_conditions or ())
            return self._list_namespaces(self._list_participants_for_namespace(prefix), prefix, op)
        raise ValueError(f"unknown operation: {type(op).__name__}")

    def _make_put_steps(self, op: PutOp) -> Steps[Result]:
        return self._put(self._list_participants_for_namespace(op.namespace), op, str(uuid4()))

    def _list_participants_for_namespace(self, namespace: Namespace) -> list[str]:
        config: Mapping[str, Any] = {}
        with contextlib.suppress(RuntimeError):  # not within a run
            config = cast("Mapping[str, Any]", get_config())
        return self._choice.list_participants(tuple(namespace), config)

    def _get(self, participants: Sequence[str], op: GetOp) -> Steps[Result]:
        value = yield from self._values.read_value(participants, tuple(op.namespace), op.key)
        return value and Item(
            value=value.value,
            key=value.key,
            namespace=value.namespace,
            created_at=value.created_at,
            updated_at=value.updated_at,
        )

    def _put(self, participants: Sequence[str], op: PutOp, request: str) -> Steps[Result]:
        namespace = tuple(op.namespace)
        if op.value is None:
            yield from self._values.remove_value(participants, namespace, op.key)
            return None
        if not namespace:
            raise ValueError("a value needs a namespace")
        yield from self._values.put_value(
            participants,
            namespace,
            op.key,
            dict(op.value),
            is_scored=op.index is not False,
            idempotency_key=request,
        )
        return None

    def _search(self, participants: Sequence[str], op: SearchOp) -> Steps[Result]:
        prefix = tuple(op.namespace_prefix)
        values = yield from self._values.list_values(participants, prefix)
        values = [value for value in values if matches_filter(value.value, op.filter)]
        scores: dict[Any, float] = {}
        if values and op.query and op.query.strip():
            namespaces = {value.namespace for value in values}
            scores = yield from self._values.score_values(participants, namespaces, op.query)
            values.sort(key=lambda value: scores.get(value.event_id, -1.0), reverse=True)
        items: list[SearchItem] = []
        for value in values[op.offset : op.offset + op.limit]:
            value_with_time = yield from self._values.with_creation_time(participants, value)
            items.append(_to_search_item(value_with_time, scores.get(value.event_id)))
        return items

    def _list_namespaces(
        self, participants: Sequence[str], prefix: Namespace, op: ListNamespacesOp
    ) -> Steps[Result]:
        namespaces = yield from self._values.list_namespaces(participants, prefix)
        conditions = op.match_conditions or ()
        matching = {
            namespace[: op.max_depth]
            for namespace in namespaces
            if all(_does_match(condition, namespace) for condition in conditions)
        }
        return sorted(matching)[op.offset : op.offset + op.limit]


def _to_search_item(value: KeyedValue, score: float | None) -> SearchItem:
    return SearchItem(
        value=value.value,
        key=value.key,
        namespace=value.namespace,
        created_at=value.created_at,
        updated_at=value.updated_at,
        score=score,
    )


def _find_common_prefix(conditions: Iterable[MatchCondition]) -> Namespace:
    """The longest prefix without wildcards that a condition demands."""
    prefixes: list[Namespace] = [()]
    for condition in conditions:
        if condition.match_type == "prefix":
            path = tuple(condition.path)
            prefixes.append(path[: path.index("*")] if "*" in path else path)
    return max(prefixes, key=len)


def _does_match(condition: MatchCondition, namespace: Namespace) -> bool:
    """Whether a namespace begins or ends with a path, in which `*` stands for any label."""
    if condition.match_type not in ("prefix", "suffix"):
        raise ValueError(f"unknown kind of match: {condition.match_type}")
    path = tuple(condition.path)
    if not path or len(namespace) < len(path):
        return not path
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[-len(path) :]
    return all(pattern in ("*", label) for pattern, label in zip(path, part, strict=True))
