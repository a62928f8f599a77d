"""Every threshold of memory's formation in one type, with its source's default."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field


class Contradiction(NamedTuple):
    """What cannot hold together, and why."""

    fields: tuple[str, ...]
    message: str


class Tuning(BaseModel):
    """What a tenant may tune; what it leaves out is the deployment's. Defaults are source A's."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    window_events: int = Field(default=10, ge=1, le=100)
    """Events that short-term memory shows at most."""
    window_seconds: int = Field(default=3600, ge=1, le=30 * 86_400)
    """How old the oldest of them may be, by our clock."""
    flush_events: int = Field(default=20, ge=4, le=500)
    """So many open events in a lane, those that still wait not counted, close its older half."""
    ahead_events: int = Field(default=3, ge=0, le=20)
    """So many later events of its lane are waited for before it is judged whether the topic goes on
    with a message. The source judges at once (0); a silence ends the waiting."""
    gap_minutes: float = Field(default=30.0, gt=0, le=30 * 1440)
    """A silence that closes a lane."""
    similarity_high: float | None = Field(default=None, ge=-1, le=1)
    """Cosine of a lane's two latest user messages from which the topic goes on. Null: as it was
    calibrated for the embedding space."""
    similarity_low: float | None = Field(default=None, ge=-1, le=1)
    """Below this it breaks; in between the model is asked. Null: as calibrated."""
    similarity_merge: float | None = Field(default=None, ge=-1, le=1)
    """Cosine of two chains' summaries from which the later run joins the earlier chain. Null: as
    calibrated."""
    merged_events: int = Field(default=200, ge=2, le=5000)
    """Chains are not merged beyond so many events."""
    vector_hours: float = Field(default=24.0, ge=0, le=30 * 24)
    """How long a fold waits for a user message's vector before it goes on without."""
    model_patience_minutes: float = Field(default=60.0, ge=0, le=30 * 1440)
    """How long a fold waits for a minute in which the model may be asked again before the twin
    answers."""
    quality: Literal["strict", "balanced", "permissive"] = "balanced"
    """How much a run must hold to be listed as a chain."""
    heat_importance: float = Field(default=0.7, ge=0, le=1)
    """Weight of a chain's importance in its heat."""
    heat_density: float = Field(default=0.3, ge=0, le=1)
    """Weight of its density."""
    heat_hours: float = Field(default=24.0, ge=0.01, le=10_000)
    """Time constant of forgetting, τ."""
    heat_growth: float = Field(default=1.5, ge=1, le=10)
    """How much stronger a recall makes a chain."""
    heat_cooldown_hours: float = Field(default=12.0, ge=0, le=1000)
    """Recalls nearer than this to the last that counted make it no stronger."""
    promote: float = Field(default=0.3, ge=0.001, le=1)
    """Heat from which a chain is promoted."""
    freezing: float = Field(default=0.1, ge=0.001, le=1)
    """Heat below which a chain may be archived."""
    archive_days: float = Field(default=7.0, ge=0, le=3650)
    """Days that a chain stays untouched before."""
    context_chains: int = Field(default=50, ge=0, le=200)
    """Chains that a context shows at most."""

    def heat_parameters(self) -> dict[str, float]:
        """What a chain's stored `cold_at` and `promote_until` go by."""
        return self.model_dump(include=_HEAT_FIELDS)

    def find_contradictions(self) -> Iterator[Contradiction]:
        """Thresholds that undo each other: each may be so, but not both."""
        for lower, upper, consequence in _ORDERED_PAIRS:
            low, high = getattr(self, lower), getattr(self, upper)
            if low is not None and high is not None and low > high:
                message = f"{lower} ({low:g}) must be at most {upper} ({high:g}), or {consequence}"
                yield Contradiction((lower, upper), message)
        max_heat = min(1.0, self.heat_importance + self.heat_density)
        if max_heat < self.freezing:
            yield Contradiction(
                ("heat_importance", "heat_density", "freezing"),
                f"heat_importance and heat_density (together {max_heat:g}) must reach freezing "
                f"({self.freezing:g}), or every chain is cold from its beginning",
            )

    def with_overrides(self, overrides: Mapping[str, Any]) -> "Tuning":
        """This, but for what a tenant set: null and absent leave it as it is, and so does what
        another release knew, which is stored still. Contradictions are refused when thresholds are
        set, and not here: the deployment's may change later."""
        values = {
            name: value for name, value in select_known(overrides).items() if value is not None
        }
        return type(self).model_validate({**self.model_dump(), **values})


def select_known(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a tenant's stored thresholds that there are in this release."""
    return {name: value for name, value in overrides.items() if name in Tuning.model_fields}


_ORDERED_PAIRS = (
    ("similarity_low", "similarity_high", "no message is left to ask the model about"),
    ("freezing", "promote", "a chain is promoted while it may be archived"),
)
"""What must not be above what, and what would follow."""
_HEAT_FIELDS = {
    "heat_importance",
    "heat_density",
    "heat_hours",
    "promote",
    "freezing",
    "archive_days",
}

DEFAULTS = Tuning()
