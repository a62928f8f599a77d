"""The types of all answers. Each is imported when the first answer of its kind is read, so that
importing the client stays fast."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strandline.admin.schemas import AuditEntry as AuditEntry
    from strandline.admin.schemas import AuditPage as AuditPage
    from strandline.admin.schemas import CertificateOut as CertificateOut
    from strandline.admin.schemas import CertificatePage as CertificatePage
    from strandline.admin.schemas import KeyOut as KeyOut
    from strandline.admin.schemas import KeyPage as KeyPage
    from strandline.admin.schemas import NewKeyOut as NewKeyOut
    from strandline.admin.schemas import RotatedKeys as RotatedKeys
    from strandline.admin.schemas import TenantDetails as TenantDetails
    from strandline.admin.schemas import TenantOut as TenantOut
    from strandline.admin.schemas import TenantPage as TenantPage
    from strandline.admin.schemas import TenantUsage as TenantUsage
    from strandline.context.schemas import ContextOut as ContextOut
    from strandline.context.schemas import ContextTextOut as ContextTextOut
    from strandline.context.schemas import SearchOut as SearchOut
    from strandline.context.schemas import TopicsOut as TopicsOut
    from strandline.erasure.schemas import ErasureFeed as ErasureFeed
    from strandline.erasure.schemas import ErasureItem as ErasureItem
    from strandline.erasure.schemas import ErasureOut as ErasureOut
    from strandline.erasure.schemas import ErasurePage as ErasurePage
    from strandline.erasure.schemas import ErasurePreview as ErasurePreview
    from strandline.graph.changes.schemas import EndedEdge as EndedEdge
    from strandline.graph.changes.schemas import InvalidatedFact as InvalidatedFact
    from strandline.graph.changes.schemas import MergeProposals as MergeProposals
    from strandline.graph.changes.schemas import RefusedMerge as RefusedMerge
    from strandline.graph.changes.schemas import RelationsAnswer as RelationsAnswer
    from strandline.graph.changes.schemas import StoredChange as StoredChange
    from strandline.graph.changes.schemas import StoredMerge as StoredMerge
    from strandline.graph.changes.schemas import UndoneMerge as UndoneMerge
    from strandline.graph.communities.schemas import CommunitiesPage as CommunitiesPage
    from strandline.graph.communities.schemas import CommunityDetail as CommunityDetail
    from strandline.graph.communities.schemas import CommunityOut as CommunityOut
    from strandline.graph.conflicts.schemas import (
        AnalyzeBeforeStoringOut as AnalyzeBeforeStoringOut,
    )
    from strandline.graph.conflicts.schemas import ConflictsOut as ConflictsOut
    from strandline.graph.fields.schemas import FieldHistory as FieldHistory
    from strandline.graph.fields.schemas import StoredRevision as StoredRevision
    from strandline.graph.fields.schemas import TopicFields as TopicFields
    from strandline.graph.lists.schemas import NodeHistory as NodeHistory
    from strandline.graph.lists.schemas import NodePage as NodePage
    from strandline.graph.nodes.schemas import CreateNodesAnswer as CreateNodesAnswer
    from strandline.graph.nodes.schemas import NodeOut as NodeOut
    from strandline.graph.search.schemas import SubgraphOut as SubgraphOut
    from strandline.graph.status.schemas import GraphStatus as GraphStatus
    from strandline.graph.transfer.schemas import GraphExportFile as GraphExportFile
    from strandline.graph.transfer.schemas import GraphImportResult as GraphImportResult
    from strandline.jobs.schemas import JobOut as JobOut
    from strandline.jobs.schemas import JobsPage as JobsPage
    from strandline.llm.schemas_model_calls import ModelCallOut as ModelCallOut
    from strandline.llm.schemas_model_calls import ModelCallPage as ModelCallPage
    from strandline.log.schemas_append import BatchAnswer as BatchAnswer
    from strandline.log.schemas_append import BatchItemResult as BatchItemResult
    from strandline.log.schemas_append import PayloadAlreadyStored as PayloadAlreadyStored
    from strandline.log.schemas_append import Receipt as Receipt
    from strandline.log.schemas_append import UploadInstructions as UploadInstructions
    from strandline.log.schemas_read import EventOut as EventOut
    from strandline.log.schemas_read import EventPage as EventPage
    from strandline.log.schemas_read import EventTree as EventTree
    from strandline.log.schemas_read import FeedPage as FeedPage
    from strandline.log.schemas_read import PresignedPayloadUrl as PresignedPayloadUrl
    from strandline.log.schemas_read import ScopeOut as ScopeOut
    from strandline.log.schemas_read import ScopePage as ScopePage
    from strandline.personas.schemas import ActOut as ActOut
    from strandline.personas.schemas import ActsPage as ActsPage
    from strandline.personas.schemas import ModelAnswerOut as ModelAnswerOut
    from strandline.personas.schemas import NextAct as NextAct
    from strandline.personas.schemas import RecordedSonaMemories as RecordedSonaMemories
    from strandline.personas.schemas import SonaDetail as SonaDetail
    from strandline.personas.schemas import SonaFound as SonaFound
    from strandline.personas.schemas import SonaOut as SonaOut
    from strandline.personas.schemas import SonaPage as SonaPage
    from strandline.provenance.schemas import ProvenanceOut as ProvenanceOut
    from strandline.recall.schemas import InsertReceipt as InsertReceipt
    from strandline.recall.schemas import RecallAnswer as RecallAnswer
    from strandline.sessions.schemas import ChainHeatOut as ChainHeatOut
    from strandline.sessions.schemas import ChainHeatPage as ChainHeatPage
    from strandline.sessions.schemas import ChainOut as ChainOut
    from strandline.sessions.schemas import EndedSession as EndedSession
    from strandline.sessions.schemas import InteractionReceipts as InteractionReceipts
    from strandline.sessions.schemas import SegmentPage as SegmentPage
    from strandline.sessions.schemas import SessionOut as SessionOut
    from strandline.sessions.schemas import SessionPage as SessionPage
    from strandline.status.schemas import Health as Health
    from strandline.status.schemas import LanguageModelState as LanguageModelState
    from strandline.status.schemas import Liveness as Liveness
    from strandline.status.schemas import MemoryState as MemoryState
    from strandline.topics.schemas_admin import DifferencePage as DifferencePage
    from strandline.topics.schemas_admin import SnapshotDetail as SnapshotDetail
    from strandline.topics.schemas_admin import SnapshotOut as SnapshotOut
    from strandline.topics.schemas_admin import SnapshotsPage as SnapshotsPage
    from strandline.topics.schemas_admin import TopicIndexState as TopicIndexState
    from strandline.topics.schemas_references import ReferencesOut as ReferencesOut
    from strandline.topics.schemas_topics import TopicOut as TopicOut
    from strandline.topics.schemas_topics import TopicsPage as TopicsPage

_MODULES = {
    "admin.schemas": (
        "AuditEntry AuditPage CertificateOut CertificatePage KeyOut KeyPage NewKeyOut"
        " RotatedKeys TenantDetails TenantOut TenantPage TenantUsage"
    ),
    "context.schemas": "ContextOut ContextTextOut SearchOut TopicsOut",
    "erasure.schemas": "ErasureFeed ErasureItem ErasureOut ErasurePage ErasurePreview",
    "graph.changes.schemas": (
        "EndedEdge InvalidatedFact MergeProposals RefusedMerge RelationsAnswer StoredChange"
        " StoredMerge UndoneMerge"
    ),
    "graph.communities.schemas": "CommunitiesPage CommunityDetail CommunityOut",
    "graph.conflicts.schemas": "AnalyzeBeforeStoringOut ConflictsOut",
    "graph.fields.schemas": "FieldHistory StoredRevision TopicFields",
    "graph.lists.schemas": "NodeHistory NodePage",
    "graph.nodes.schemas": "CreateNodesAnswer NodeOut",
    "graph.search.schemas": "SubgraphOut",
    "graph.status.schemas": "GraphStatus",
    "graph.transfer.schemas": "GraphExportFile GraphImportResult",
    "jobs.schemas": "JobOut JobsPage",
    "llm.schemas_model_calls": "ModelCallOut ModelCallPage",
    "log.schemas_append": (
        "BatchAnswer BatchItemResult PayloadAlreadyStored Receipt UploadInstructions"
    ),
    "log.schemas_read": (
        "EventOut EventPage EventTree FeedPage PresignedPayloadUrl ScopeOut ScopePage"
    ),
    "personas.schemas": (
        "ActOut ActsPage ModelAnswerOut NextAct RecordedSonaMemories SonaDetail SonaFound SonaOut"
        " SonaPage"
    ),
    "provenance.schemas": "ProvenanceOut",
    "recall.schemas": "InsertReceipt RecallAnswer",
    "sessions.schemas": (
        "ChainHeatOut ChainHeatPage ChainOut EndedSession InteractionReceipts SegmentPage"
        " SessionOut SessionPage"
    ),
    "status.schemas": "Health LanguageModelState Liveness MemoryState",
    "topics.schemas_admin": (
        "DifferencePage SnapshotDetail SnapshotOut SnapshotsPage TopicIndexState"
    ),
    "topics.schemas_references": "ReferencesOut",
    "topics.schemas_topics": "TopicOut TopicsPage",
}
MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}
"""The module of each type, below the package."""


def __getattr__(name: str) -> Any:
    if name not in MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"strandline.{MODULE_OF[name]}"), name)
