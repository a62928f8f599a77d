"""All thresholds of memory formation in one model, with the defaults of their source."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field


class ThresholdContradiction(NamedTuple):
    """Thresholds that contradict each other, and why."""

    fields: tuple[str, ...]
    message: str


class Tuning(BaseModel):
    """The thresholds that a tenant can set; those it leaves out are the deployment's. The defaults
    are source A's."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    window_events: int = Field(default=10, ge=1, le=100)
    """The most events of short-term memory."""
    window_seconds: int = Field(default=3600, ge=1, le=30 * 86_400)
    """The maximum age of these events, in seconds by the server's clock."""
    flush_events: int = Field(default=20, ge=4, le=500)
    """The number of open events in a lane at which its older half is closed. Events that still wait
    are not counted."""
    ahead_events: int = Field(default=3, ge=0, le=20)
    """How many later events of the lane to wait for before deciding whether the topic continues
    with a message. The source decides at once (0); a silence ends the wait."""
    gap_minutes: float = Field(default=30.0, gt=0, le=30 * 1440)
    """Minutes of silence after which a lane is closed."""
    similarity_high: float | None = Field(default=None, ge=-1, le=1)
    """Cosine of a lane's two latest user messages from which the topic continues. Null: the
    calibrated value of the embedding space."""
    similarity_low: float | None = Field(default=None, ge=-1, le=1)
    """Below this cosine the topic ends; in between the model is asked. Null: the calibrated
    value."""
    similarity_merge: float | None = Field(default=None, ge=-1, le=1)
    """Cosine of two chains' summaries from which the later run of events joins the earlier chain.
    Null: the calibrated value."""
    merged_events: int = Field(default=200, ge=2, le=5000)
    """Chains are not merged if together they have more events than this."""
    vector_hours: float = Field(default=24.0, ge=0, le=30 * 24)
    """How long a fold waits for a user message's vector before it continues without."""
    model_patience_minutes: float = Field(default=60.0, ge=0, le=30 * 1440)
    """How long a fold waits until the model may be asked again, before the heuristic model
    answers."""
    quality: Literal["strict", "balanced", "permissive"] = "balanced"
    """How much a run of events must contain to be listed as a chain."""
    heat_importance: float = Field(default=0.7, ge=0, le=1)
    """Weight of a chain's importance in its heat."""
    heat_density: float = Field(default=0.3, ge=0, le=1)
    """Weight of a chain's density in its heat."""
    heat_hours: float = Field(default=24.0, ge=0.01, le=10_000)
    """Time constant of forgetting, τ, in hours."""
    heat_growth: float = Field(default=1.5, ge=1, le=10)
    """The factor by which a recall strengthens a chain."""
    heat_cooldown_hours: float = Field(default=12.0, ge=0, le=1000)
    """Hours after a recall that strengthened a chain in which further recalls do not strengthen it
    again."""
    promote: float = Field(default=0.3, ge=0.001, le=1)
    """Heat from which a chain is promoted."""
    promote_at_once: float = Field(default=0.8, ge=0.001, le=1)
    """Heat from which a chain is promoted at once; below it, half an hour after its last change."""
    ltm_enabled: bool = True
    """Whether chains are promoted into the knowledge graph, and contexts read it."""
    ltm_kg_enabled: bool = True
    """Whether a configured language model extracts what is promoted, and contexts read the
    knowledge graph. If not, the heuristic model extracts, and contexts leave the knowledge graph
    out."""
    persona: float = Field(default=0.7, ge=0, le=1)
    """Confidence from which a fact about a person is promoted."""
    freezing: float = Field(default=0.1, ge=0.001, le=1)
    """Heat below which a chain may be archived."""
    archive_days: float = Field(default=7.0, ge=0, le=3650)
    """Days without a recall or change after which a chain may be archived."""
    min_known: float | None = Field(default=None, ge=0, le=1)
    """The minimum likelihood that a question has an answer; below it a search returns no hits.
    Null: the calibrated value of the embedding space."""
    context_chains: int = Field(default=50, ge=0, le=200)
    """The most chains of a context."""
    edge_confidence: Literal["mean", "halving"] = "mean"
    """How the confidences from several sources of a node or an edge of the graph are combined:
    `mean` of all of them, or `halving`, where each new source gives the mean of the previous result
    and its own confidence."""

    def heat_time_parameters(self) -> dict[str, float]:
        """The thresholds that a chain's stored `cold_at` and `promote_until` depend on."""
        return self.model_dump(include=_HEAT_FIELDS)

    @property
    def contexts_read_graph(self) -> bool:
        """Whether contexts read the knowledge graph."""
        return self.ltm_enabled and self.ltm_kg_enabled

    def promotion_due_parameters(self) -> dict[str, object]:
        """The thresholds that determine when chains are due for promotion."""
        return self.model_dump(include={"ltm_enabled", "promote_at_once"})

    def find_contradictions(self) -> Iterator[ThresholdContradiction]:
        """Thresholds that contradict each other: each is valid alone, but not together."""
        for lower, upper, consequence in _ORDERED_PAIRS:
            low, high = getattr(self, lower), getattr(self, upper)
            if low is not None and high is not None and low > high:
                message = f"{lower} ({low:g}) must be at most {upper} ({high:g}), or {consequence}"
                yield ThresholdContradiction((lower, upper), message)
        max_heat = min(1.0, self.heat_importance + self.heat_density)
        if max_heat < self.freezing:
            yield ThresholdContradiction(
                ("heat_importance", "heat_density", "freezing"),
                f"heat_importance and heat_density (together {max_heat:g}) must reach freezing "
                f"({self.freezing:g}), or every chain is cold from its beginning",
            )

    def with_overrides(self, overrides: Mapping[str, Any]) -> "Tuning":
        """These thresholds with a tenant's own. Null and absent ones leave the value as it is, and
        so do stored names that this release does not know. Contradictions are refused when a
        tenant's thresholds are set, and not here, because the deployment's may change later."""
        values = {
            name: value
            for name, value in select_known_thresholds(overrides).items()
            if value is not None
        }
        return type(self).model_validate({**self.model_dump(), **values})


def select_known_thresholds(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A tenant's stored thresholds that this release knows."""
    return {name: value for name, value in overrides.items() if name in Tuning.model_fields}


_ORDERED_PAIRS = (
    ("similarity_low", "similarity_high", "no message is left to ask the model about"),
    ("freezing", "promote", "a chain is promoted while it may be archived"),
)
"""Pairs in which the first must not exceed the second, and the consequence if it does."""
_HEAT_FIELDS = {
    "heat_importance",
    "heat_density",
    "heat_hours",
    "promote",
    "freezing",
    "archive_days",
}

DEFAULTS = Tuning()
