"""Requests and answers about contradictions, and about advice before something is stored."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import Self, TypeAliasType

from strandline.graph.nodes.schemas import FactCategory
from strandline.graph.search.schemas import FoundNode
from strandline.schemas import Participants, RequestModel, ResponseModel

Content = TypeAliasType("Content", Annotated[str, Field(min_length=1, max_length=4000)])
ContentType = TypeAliasType(
    "ContentType", Literal["conversation", "statement", "decision", "event"]
)
Advice = TypeAliasType(
    "Advice",
    Literal[
        "nothing_related", "known_already", "contradicts", "known_names", "near_topic", "low_trust"
    ],
)


class ConflictsRequest(RequestModel):
    """Which facts to compare."""

    participants: Participants | None = None
    """The participants to read for: only what all of them took part in. A bound user is added
    automatically."""
    content: Content | None = None
    """A statement that is compared with all facts in view. It is not stored."""
    node_id: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """A fact that is compared with all facts in view. Without it and `content` the 500 facts that
    changed last are compared with each other."""
    category: FactCategory | None = None
    """Only facts of this category."""
    threshold: Annotated[float, Field(gt=0, le=1, strict=True)] | None = None
    """The least cosine at which two facts are tested; by default the embedding space's own
    threshold."""
    limit: int = Field(default=10, ge=1, le=50, strict=True)
    """The maximum number of contradictions."""

    @model_validator(mode="after")
    def _check_at_most_one_subject(self) -> Self:
        if self.content is not None and self.node_id is not None:
            raise ValueError("send content or node_id, not both")
        return self


class ComparedFactOut(ResponseModel):
    """One side of a contradiction."""

    id: str | None
    """Null for the request's `content`."""
    content: str
    confidence: float | None
    trust: str | None
    valid_from: datetime | None
    updated_at: datetime | None


class ContradictionVerdictOut(ResponseModel):
    """The result of one test of two facts."""

    test: Literal["deterministic", "model"]
    contradicts: bool
    reason: str | None
    """The reason, if the test is the deterministic one."""
    model: str | None
    """The name of the model, if the test is the model's."""


class ConflictOut(ResponseModel):
    """Two similar facts, and what tests say about them."""

    facts: list[ComparedFactOut]
    """The two facts, the newer one first."""
    similarity: float
    """The cosine of their vectors."""
    tests: list[ContradictionVerdictOut]
    """The result of the deterministic test, and of the model's if one is configured and
    answered."""
    suggestion: str
    """What to do about the contradiction."""


class ConflictsOut(ResponseModel):
    """Contradictions between facts that hold now, the most similar first."""

    conflicts: list[ConflictOut]
    candidates: list[ConflictOut]
    """Facts that are as similar, in which the deterministic test found nothing and which no model
    judged, the most similar first, at most `limit`: judge them yourself."""
    threshold: float
    """The least cosine at which two facts were tested."""
    compared: int
    """How many pairs of facts were similar enough to be tested."""
    degraded: list[str]
    """Codes for the limits of this answer; empty if there are none. `no_query_vector`: the content
    could not be embedded, so nothing was compared. `no_model`: only the deterministic test was run.
    `model_failed`: the model gave no usable answer for a pair. `model_cut`: the model tested only
    the ten most similar pairs. `facts_cut`: there are more than 500 facts, and only those that
    changed last were compared with each other; use `category` for fewer facts, or `content` or
    `node_id` to compare one with all. `pairs_cut`: more than 200 pairs are similar enough, and only
    the most similar were tested. `cut_by_limit`: there are more contradictions."""


class AnalyzeBeforeStoringRequest(RequestModel):
    """A text that a caller considers storing."""

    content: str = Field(min_length=1, max_length=8000)
    content_type: ContentType = "conversation"
    """The kind of text."""
    participants: Participants | None = None
    """The participants to read for: only what all of them took part in. A bound user is added
    automatically."""
    limit: int = Field(default=10, ge=1, le=50, strict=True)
    """The maximum number of related nodes."""


class StoringAdviceOut(ResponseModel):
    """One piece of advice before storing."""

    code: Advice
    text: str
    node_ids: list[str]
    """The nodes that it concerns."""


class AnalyzeBeforeStoringOut(ResponseModel):
    """Stored facts and events that concern a text, and advice before it is stored."""

    related: list[FoundNode]
    conflicts: list[ConflictOut]
    candidates: list[ConflictOut]
    """Similar facts as in `candidates` of conflicts: judge them yourself."""
    weigh: list[StoringAdviceOut]
    store_as: list[str]
    """How to store the parts that are worth it: the fields of `POST /api/v1/graph/nodes`, by
    type."""
    degraded: list[str]
    """The codes of a search and of conflicts."""
