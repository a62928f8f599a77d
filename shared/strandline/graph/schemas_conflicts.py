"""Requests and answers about contradictions, and about what to weigh before something is stored."""

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from strandline.graph.schemas_nodes import FactCategory
from strandline.graph.schemas_search import FoundNode
from strandline.schemas import Participants, RequestModel, ResponseModel

type Content = Annotated[str, Field(min_length=1, max_length=4000)]
type ContentType = Literal["conversation", "statement", "decision", "event"]
type Advice = Literal[
    "nothing_related", "known_already", "contradicts", "known_names", "near_topic", "low_trust"
]


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
    """The least cosine of two facts that are compared; by default the embedding space's own."""
    limit: int = Field(default=10, ge=1, le=50, strict=True)
    """The most contradictions of the answer."""

    @model_validator(mode="after")
    def _check_subject(self) -> Self:
        if self.content is not None and self.node_id is not None:
            raise ValueError("send content or node_id, not both")
        return self


class FactOut(ResponseModel):
    """One side of a contradiction."""

    id: str | None
    """Null for the `content` of the request."""
    content: str
    confidence: float | None
    trust: str | None
    valid_from: datetime | None
    updated_at: datetime | None


class VerdictOut(ResponseModel):
    """What one test says of two facts."""

    test: Literal["deterministic", "model"]
    contradicts: bool
    reason: str | None
    """Of the deterministic test: why."""
    model: str | None
    """Of the model's: which model."""


class ConflictOut(ResponseModel):
    """Two facts that contradict each other, by one test at least."""

    facts: list[FactOut]
    """Two, the newer one first."""
    similarity: float
    """The cosine of their vectors."""
    tests: list[VerdictOut]
    """The deterministic one, and the model's where one is configured and answered."""
    suggestion: str
    """What to do about it."""


class ConflictsOut(ResponseModel):
    """Contradictions between facts that hold, most similar first."""

    conflicts: list[ConflictOut]
    threshold: float
    """The least cosine of two facts that were compared."""
    compared: int
    """How many pairs of facts were similar enough to be tested."""
    degraded: list[str]
    """How this answer is limited; empty if it is not. `no_query_vector`: the content could not be
    embedded, so that nothing was compared. `no_model`: only the deterministic test was made.
    `model_failed`: the model gave no usable answer for a pair. `model_cut`: it was asked about the
    ten most similar pairs alone. `facts_cut`: there are more than 500 facts, of which those that
    changed last were compared with each other; `category` narrows them, and `content` or `node_id`
    compares one with all. `pairs_cut`: more than 200 pairs are similar enough; the most similar
    were tested. `cut_by_limit`: there are more contradictions."""


class AnalyzeRequest(RequestModel):
    """What a caller thinks of storing."""

    content: str = Field(min_length=1, max_length=8000)
    content_type: ContentType = "conversation"
    """What it is: of a `statement` it is tested whether it contradicts a known fact."""
    participants: Participants | None = None
    """The participants to read for: only what all of them took part in. A bound user is added
    automatically."""
    limit: int = Field(default=10, ge=1, le=50, strict=True)
    """The most related nodes of the answer."""


class AdviceOut(ResponseModel):
    """Something to weigh before storing."""

    code: Advice
    text: str
    node_ids: list[str]
    """The nodes that it is about."""


class AnalyzeOut(ResponseModel):
    """What is known already that bears on a text, and what to weigh."""

    related: list[FoundNode]
    conflicts: list[ConflictOut]
    weigh: list[AdviceOut]
    store_as: list[str]
    """How to store what is worth it: the fields of `POST /api/v1/graph/nodes`, by type."""
    degraded: list[str]
    """As of a search and of conflicts."""
