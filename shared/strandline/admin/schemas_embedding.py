"""Types for the embedding space that a tenant reads, and its switch to another."""

from datetime import datetime

from strandline.schemas import ResponseModel


class EmbeddingProgress(ResponseModel):
    """How far the vectors of the configured embedding model are computed, beside those that the
    tenant reads."""

    events: int
    all_events: int
    chains: int
    all_chains: int
    nodes: int
    """Of the knowledge graph."""
    all_nodes: int
    refused: int
    """Events whose text the model refused: they are found by their words alone."""
    missing: int
    """How many vectors are left to compute."""


class EmbeddingSwitch(ResponseModel):
    """A tenant's change from the vectors of one embedding model to those of another."""

    from_space: str
    to_space: str
    begun_at: datetime
    ended_at: datetime | None
    switched: bool
    """Whether the tenant came to read `to_space`. If not, the switch goes on, or another model was
    configured meanwhile."""
    texts: int
    """How many texts the new model was given."""
    characters: int
    tokens: int
    """About as many tokens: a quarter of the characters."""
    usd: float
    """What they cost at the deployment's price; 0 where it has none."""
    usd_left: float | None
    """What the rest will cost, at the mean length of the texts so far; null: not known yet."""
    failure: str | None
    """Why the last attempt ended early; null: it did not."""
    compared_at: datetime | None
    """When the answers in both spaces were compared; null: not yet."""
    questions: int | None
    """On how many of the tenant's latest questions."""
    overlap: float | None
    """The share of the ten first hits that both have."""
    same_first: float | None
    """The share of the questions with the same first hit."""


class EmbeddingState(ResponseModel):
    """The embedding model whose vectors a tenant's answers rest on."""

    reads: str | None
    """The space that it reads: provider, model and dimension. Null: nothing was embedded yet."""
    configured: str
    """The space of the configured model."""
    model_reachable: bool
    """Whether the model of the space that it reads can be asked. If not, its questions are answered
    in the configured space as far as it is filled, else by words."""
    held: bool
    """Whether it waits for `embedding_switch` to be `auto`."""
    progress: EmbeddingProgress | None
    """Null: it reads the configured space."""
    latest: EmbeddingSwitch | None
    """The switch that began last; null: none ever did."""


class TenantSpace(EmbeddingState):
    """A tenant's embedding space."""

    tenant_id: str
