"""Published snapshots for tests of their readers: trees grown from the chains that are there, and
written as a build writes them."""

import hashlib
import json
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg
from psycopg.rows import DictRow, dict_row

from strandline.topics.tree import NewLeaf, TopicTree, TreeSettings, TreeSlotRow
from strandline.topics.vectors import MeanVector, compute_weighted_mean
from tests.support import ScratchDatabase

type Db = psycopg.Connection[DictRow]
type Cutoff = Callable[[Sequence[int], int], int]
_TRUST = ("document", "tool", "agent", "user", "system")


def find_cutoff(seqs: Sequence[int], last_seq: int) -> int:
    """The greatest n up to which every event is among these."""
    leases, n = set(seqs), 0
    while n < last_seq and n + 1 in leases:
        n += 1
    return n


def publish(
    base: ScratchDatabase,
    tenant: str = "acme",
    *,
    positions: int | None = None,
    cutoff: Cutoff = find_cutoff,
    space: str = "minilm-l6-v2-int8/384",
) -> int:
    """Publish a snapshot of all scopes of a tenant with their chain versions up to a position
    (None: all); gives its version."""
    with psycopg.Connection[DictRow].connect(base.admin_url, row_factory=dict_row) as db:
        db.execute("select pg_advisory_xact_lock(26)")
        row = db.execute(
            "select coalesce(max(version), 0) + 1 as n from snapshots where tenant_id = %s",
            [tenant],
        ).fetchone()
        assert row
        version: int = row["n"]
        scopes = db.execute("select * from scopes where tenant_id = %s", [tenant]).fetchall()
        for scope in scopes:
            _Scope(db, tenant, scope, version, space).write(positions or 2**31, cutoff)
        configuration = {"space": space, "model": "heuristic/4", "prompt": "topics"}
        db.execute(
            "insert into snapshots select %(tenant)s, %(version)s, %(id)s, %(version)s - 1, null,"
            " null, clock_timestamp(), %(scopes)s, 0, 0, 0, 0, '[]', %(configuration)s::jsonb",
            {
                "tenant": tenant,
                "version": version,
                "id": uuid.uuid4(),
                "scopes": len(scopes),
                "configuration": json.dumps(configuration),
            },
        )
        db.execute(
            "insert into active_snapshot values (%s, %s)"
            " on conflict (tenant_id) do update set version = excluded.version",
            [tenant, version],
        )
        return version


@dataclass
class _Scope:
    db: Db
    tenant: str
    scope: Mapping[str, Any]
    version: int
    space: str

    def write(self, positions: int, cutoff: Cutoff) -> None:
        """Write what changed since the version before."""
        leaves = self._all(
            "select v.*, encode(v.content_hash, 'hex') as hash from chain_versions v"
            " where v.tenant_id = %(tenant)s and v.scope_id = %(scope)s and v.position <= %(last)s"
            " order by v.position",
            last=positions,
        )
        if not leaves:
            return
        nodes: dict[uuid.UUID, dict[str, Any]] = {}
        tree = TopicTree(TreeSettings(self._slot, 0.3, 0.1), _none)
        before: uuid.UUID | None = None
        for leaf in leaves:
            node = self._leaf_node(leaf)
            nodes[node["node_id"]] = node
            chain, number = leaf["chain_id"], leaf["version"]
            tree.insert_leaf(NewLeaf(chain, number, node["node_id"], node["vector"], before))
            before = chain
        for slot in tree.changed_inner_slots():
            below = [nodes[tree.node_ids[child]] for child in tree.children(slot)]
            node = self._inner_node(below)
            nodes[node["node_id"]] = node
            tree.set_content(slot, node["node_id"])
        rows = tree.to_rows()
        for node_id in {row.node_id for row in rows}:
            self._add_node(nodes[node_id])
        self._add_rows(rows)
        self._add_scope(tree, rows, nodes[tree.node_ids[tree.root]], cutoff)

    def _all(self, statement: str, **more: object) -> list[DictRow]:
        values = {"tenant": self.tenant, "scope": self.scope["scope_id"], **more}
        return self.db.execute(statement.encode(), values).fetchall()

    def _slot(self, number: int) -> uuid.UUID:
        return _id(self.tenant, str(self.scope["scope_id"]), self.space, "slot", number)

    def _leaf_node(self, leaf: Mapping[str, Any]) -> dict[str, Any]:
        events = self._all(
            "select e.event_id, e.seq, v.embedding::text as vector from chain_events e"
            " left join event_vectors v on v.tenant_id = e.tenant_id and v.event_id = e.event_id"
            " and v.space = %(space)s"
            " where e.chain_id = %(chain)s and e.since_version <= %(version)s order by e.seq",
            chain=leaf["chain_id"],
            version=leaf["version"],
            space=self.space,
        )
        vectors = [tuple(json.loads(e["vector"])) for e in events if e["vector"]]
        self.db.execute(
            "insert into topic_events select tenant_id, chain_id, event_id, scope_id, participants,"
            " seq, since_version from chain_events where chain_id = %s and since_version <= %s"
            " on conflict do nothing",
            [leaf["chain_id"], leaf["version"]],
        )
        fields = {name: leaf[name] for name in _SHARED}
        if leaf["rejected"]:
            fields |= {"topic": None, "summary": None}
        vector = compute_weighted_mean([MeanVector(values, 1) for values in vectors])
        key = [self.tenant, str(leaf["scope_id"]), "leaf", leaf["hash"], leaf["version"]]
        return {
            **fields,
            "kind": "leaf",
            "node_id": _id(*key, self.space, len(vectors)),
            "chain_id": leaf["chain_id"],
            "chain_version": leaf["version"],
            "leaf_count": 1,
            "vector": vector,
        }

    def _inner_node(self, below: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        topics = "; ".join(node["topic"] or node["summary"] or "small talk" for node in below)
        return {
            "kind": "inner",
            "node_id": _id(self.tenant, "inner", *(str(node["node_id"]) for node in below)),
            "chain_id": None,
            "chain_version": None,
            "topic": None,
            "summary": f"About {topics}"[:400] + ".",
            "started_at": min(node["started_at"] for node in below),
            "last_event_at": max(node["last_event_at"] for node in below),
            "event_count": sum(node["event_count"] for node in below),
            "leaf_count": sum(node["leaf_count"] for node in below),
            "trust": min((node["trust"] for node in below), key=_TRUST.index),
            "vector": compute_weighted_mean([node["vector"] for node in below if node["vector"]]),
        }

    def _add_node(self, node: Mapping[str, Any]) -> None:
        vector: MeanVector | None = node["vector"]
        self.db.execute(
            "insert into topic_nodes (tenant_id, node_id, scope_id, participants, kind,"
            " content_hash, chain_id, chain_version, topic, summary, started_at, last_event_at,"
            " event_count, leaf_count, trust, space, embedding, vector_count, models)"
            " select %(tenant)s, %(node_id)s, %(scope)s, %(who)s, %(kind)s,"
            " %(hash)s, %(chain_id)s, %(chain_version)s, %(topic)s, %(summary)s, %(started_at)s,"
            " %(last_event_at)s, %(event_count)s, %(leaf_count)s, %(trust)s, %(space)s,"
            " %(embedding)s::halfvec, %(weight)s, '{}' on conflict do nothing",
            {
                **{name: value for name, value in node.items() if name != "vector"},
                "tenant": self.tenant,
                "scope": self.scope["scope_id"],
                "who": self.scope["participants"],
                "hash": node["node_id"].bytes,
                "space": self.space,
                "embedding": None if vector is None else json.dumps(list(vector.values)),
                "weight": vector.weight if vector else 0,
            },
        )

    def _add_rows(self, rows: Sequence[TreeSlotRow]) -> None:
        stored_rows = {
            row["slot"]: TreeSlotRow(
                row["slot"],
                row["parent_slot"],
                row["node_id"],
                row["is_leaf"],
                row["chain_version"],
            )
            for row in self._all(
                "select * from topic_tree where tenant_id = %(tenant)s and scope_id = %(scope)s"
                " and to_version is null"
            )
        }
        expected_rows = {row.slot: row for row in rows}
        removed_ids = [slot for slot, row in stored_rows.items() if expected_rows.get(slot) != row]
        self.db.execute(
            "update topic_tree set to_version = %s where scope_id = %s and slot = any (%s)"
            " and to_version is null",
            [self.version, self.scope["scope_id"], removed_ids],
        )
        for slot, row in expected_rows.items():
            if stored_rows.get(slot) != row:
                self.db.execute(
                    "insert into topic_tree values (%s, %s, %s, %s, %s, %s, %s, %s, %s, null)",
                    [
                        self.tenant,
                        self.scope["scope_id"],
                        self.scope["participants"],
                        slot,
                        row.parent_slot,
                        row.node_id,
                        row.is_leaf,
                        row.chain_version,
                        self.version,
                    ],
                )

    def _add_scope(
        self, tree: TopicTree, rows: Sequence[TreeSlotRow], root: Mapping[str, Any], cutoff: Cutoff
    ) -> None:
        seqs = [
            row["seq"]
            for row in self._all(
                "select e.seq from topic_tree t join topic_events e on e.chain_id = t.slot"
                " and e.since_version <= t.chain_version where t.scope_id = %(scope)s"
                " and t.is_leaf and t.to_version is null"
            )
        ]
        self._all(
            "update snapshot_scopes set to_version = %(version)s where scope_id = %(scope)s"
            " and to_version is null returning 1",
            version=self.version,
        )
        self.db.execute(
            "insert into snapshot_scopes values (%s, %s, %s, %s, null, %s, %s, %s, 0, %s, %s, %s,"
            " %s, %s)",
            [
                self.tenant,
                self.scope["scope_id"],
                self.scope["participants"],
                self.version,
                tree.root,
                root["node_id"],
                cutoff(seqs, self.scope["last_seq"]),
                tree.slots_numbered,
                self.space,
                len(tree.leaf_slots()),
                len(rows),
                len(seqs),
            ],
        )


_SHARED = ("topic", "summary", "started_at", "last_event_at", "event_count", "trust")


def _id(*parts: object) -> uuid.UUID:
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return uuid.UUID(bytes=digest[:16], version=4)


def _none(slots: Collection[uuid.UUID]) -> Mapping[uuid.UUID, MeanVector]:
    assert not slots, "a tree that grows from nothing loads no vector"
    return {}


publish_without_cutoff = partial(publish, cutoff=lambda seqs, last_seq: last_seq)
"""A build that calls everything taken in: what is under no leaf is lost."""
