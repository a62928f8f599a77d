"""Every table and store that holds memory, how its rows are found by event, and how they are
cleared.

A test compares these tables with the database catalogue. It fails if a table that cites an event or
holds data derived from one is missing here. This module is pure data.
"""

from typing import Literal, NamedTuple

type Clearing = Literal["tombstone", "deleted", "blanked", "renewed", "kept", "removed"]
"""`tombstone`: id, scope, seq and times stay. `deleted`: the row is deleted. `blanked`: its text is
removed, and written again later. `renewed`: it is computed again at once. `kept`: it contains
nothing of what was said. `removed`: the job removes it from a store outside the database."""


class DataLocation(NamedTuple):
    """One table or store that holds memory."""

    found_by: str
    clearing: Clearing
    detail: str = ""


DATA_LOCATIONS = {
    # the log
    "events": DataLocation("event_id", "tombstone"),
    "event_keys": DataLocation("event_id", "deleted", "an HMAC of the key stays in erased_keys"),
    "memory_edges": DataLocation("event_id", "deleted", "edges of others to it keep the bare CID"),
    "decisions": DataLocation(
        "event_id", "deleted", "those of its chain's other events are blanked"
    ),
    "sessions": DataLocation("session and scope", "deleted", "with its last event"),
    "lanes": DataLocation("session and scope", "deleted", "with its last event"),
    "blobs": DataLocation(
        "blob_cid and writer", "deleted", "unless the writer's other events cite it"
    ),
    "uploads": DataLocation("blob_cid and writer; writer, tenant", "deleted", "uncited ones too"),
    # indexes
    "event_search": DataLocation(
        "event_id, cited_id", "deleted", "the event after it is indexed again"
    ),
    "event_texts": DataLocation("event_id", "deleted"),
    "event_vectors": DataLocation("event_id", "deleted"),
    "embedding_cache": DataLocation("event_id", "deleted"),
    "event_uses": DataLocation("event_id, cited_id", "deleted"),
    # chains
    "chain_events": DataLocation("event_id", "deleted"),
    "chains": DataLocation("chain_events", "blanked", "deleted where no event is left"),
    "chain_versions": DataLocation("chain_events", "blanked", "deleted where no event is left"),
    "chain_vectors": DataLocation("chain_events", "deleted"),
    "dropped_chain_state": DataLocation("chain_events", "deleted"),
    "recalls": DataLocation("chain_events", "deleted", "where no event is left"),
    # topic index
    "topic_events": DataLocation("event_id", "deleted"),
    "topic_nodes": DataLocation("the leaf of its chain, and all above it", "blanked"),
    "topic_tree": DataLocation("scope", "deleted", "where the scope has no chain left"),
    "snapshot_scopes": DataLocation("scope", "deleted", "where the scope has no chain left"),
    "snapshots": DataLocation("topic_tree", "kept", "marked: never active again"),
    "topic_build_scopes": DataLocation(
        "topic_events", "kept", "ids; the build fails its validation"
    ),
    # graph
    "graph_sources": DataLocation("event_id", "deleted"),
    "graph_observations": DataLocation("graph_sources, its chain", "deleted"),
    "graph_nodes": DataLocation(
        "graph_observations", "renewed", "deleted where no observation is left"
    ),
    "graph_edges": DataLocation(
        "graph_observations", "renewed", "deleted where no observation is left"
    ),
    "topic_fields": DataLocation(
        "topic_field_revisions", "renewed", "the revision before is the newest"
    ),
    "topic_field_revisions": DataLocation("event_id", "deleted"),
    # personas
    "sona_members": DataLocation("event_id", "deleted"),
    "sona_centroids": DataLocation("sona_members", "renewed", "deleted where no member is left"),
    "acts": DataLocation("event_id", "deleted"),
    "turns": DataLocation(
        "turn_events; asked_by, tenant",
        "deleted",
        "no matter who asked; the erased person's questions; all where the tenant is erased",
    ),
    "turn_events": DataLocation("event_id", "deleted", "with the turn's other events"),
    "sona_names": DataLocation(
        "writer, tenant", "deleted", "no event holds them: with all that the writer said"
    ),
    # records of use
    "recall_answers": DataLocation(
        "event_ids", "kept", "ids; nothing follows from those of an erased event"
    ),
    "reference_answers": DataLocation("selection", "kept", "ids; asked again it is 410"),
    # erasure itself
    "erased_events": DataLocation("event_id", "kept", "the feed of erasures"),
    "erased_keys": DataLocation("event_id", "kept", "HMACs"),
    "erased_acts": DataLocation("acts", "kept", "their places in threads"),
    "erased_chains": DataLocation("chain_id", "kept", "until the chain is formed again"),
    "erasure_marks": DataLocation("erasure", "kept", "until all its events are tombstones"),
    "erased_payloads": DataLocation("erasure", "kept", "until the object is removed"),
}
"""Tables that hold memory, by name."""

STORES = {
    "payloads in S3": DataLocation(
        "blob_cid", "removed", "all versions, unless another event cites it"
    ),
    "pending uploads in S3": DataLocation("uploads", "removed", "all versions"),
    "exports in S3": DataLocation("tenant", "removed", "all versions of all from before"),
}
"""Stores outside the database that hold memory."""

HOLDS_NO_MEMORY = {
    "tenants": "settings",
    "api_keys": "credentials",
    "certificate_principals": "credentials",
    "audit_log": "who did what, by ids",
    "scopes": "participants and counts",
    "scope_members": "participants",
    "scope_work": "what is due",
    "embedding_progress": "a position",
    "space_switches": "counts, shares and a model's failure",
    "quotas": "counts",
    "waits": "leases of seconds",
    "model_rates": "counts",
    "model_states": "of models",
    "monthly_spend": "costs",
    "model_calls": "a ledger without text",
    "jobs": "ids and codes",
    "job_shards": "codes",
    "blob_removals": "CIDs of objects that go",
    "blob_scans": "a position",
    "topic_work": "what is due",
    "active_snapshot": "a version",
    "tenant_due_times": "what is due",
    "topic_builds": "a version",
    "graph_analyses": "counts",
    "graph_communities": "counts; named by nodes when read",
    "graph_members": "scores of nodes, gone with them",
    "graph_tenant_analyses": "a digest",
    "graph_tenant_communities": "counts; named by nodes when read",
    "graph_tenant_members": "scores of nodes, gone with them",
    "erasures": "ids, times and counts",
    "sonas": "ids and counts",
    "space_figures": "cosines of texts that ship",
    "schema_migrations": "of the schema",
    "schema_functions": "of the schema",
}
"""Tables with nothing to clear, and what they hold instead."""

UNREACHED = (
    "Backups of the database, until `backups_until`, where the deployment says how long they last;"
    " snapshots that somebody took by hand, until they are deleted. What is restored from them is"
    " to be erased again.",
    "Without `vacuumed_at`: row versions that the database has not given up yet, and values in the"
    " planner's statistics. With it: what is left in free space of its files and in its write-ahead"
    " log, and versions of statistics that the database has not given up yet. No query and no dump"
    " reads these.",
    "Copies that callers made of answers, and URLs of payloads until they expire.",
    "What a provider of language or embedding models keeps of what it was sent, also by a job that"
    " ran when the event was erased.",
    "An upload that was put again by a `PUT` that ended after its URL expired. Nothing reads it.",
    "What other events say of it, such as the reply of an agent that repeats it, or a statement"
    " that names a node of the graph: each is erased by itself. A bound user erases the replies"
    " that agents gave with that user's own credential.",
    "Names of participants: scopes keep them, and `participants` of tombstones.",
    "Names of sonas that another credential gave, and after a bound user's own erasure what another"
    " credential asked for that user: names go with an erasure of the tenant, questions with the"
    " erasure by an unbound credential.",
    "The spelling of a name in the graph that another event states too.",
    "The CID of an erased event where blocks of other events cite it: they still verify.",
)
"""What an erasure cannot reach. Every receipt and `docs/erasure.md` list it."""
