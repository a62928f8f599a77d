"""Which embedding space a tenant reads, and how far it is on its way to the configured one."""

from dataclasses import dataclass

from strandline.config import ServiceSettings
from strandline.db.database import TenantDb
from strandline.embeddings.embedder import Embedder
from strandline.embeddings.reachable import ReachableEmbedders
from strandline.tenants import store_spaces
from strandline.tenants.store_spaces import FillCounts, SpaceSwitch

_CHARACTERS_PER_TOKEN = 4
"""Of English. Models of other languages, and other languages, have fewer."""


@dataclass(frozen=True)
class SpaceState:
    """The space that a tenant reads beside the configured one."""

    reads: str | None
    """None: no event was embedded yet."""
    configured: str
    is_reachable: bool
    """Whether the model of the space that it reads can be asked."""
    is_held: bool
    """Whether it is to read the configured space only when an operator says so."""
    filled: FillCounts | None
    """How far the configured space is filled; None where the tenant reads it."""
    latest: SpaceSwitch | None
    """The switch that began last."""
    usd_per_million: float

    @property
    def missing(self) -> int:
        """How many vectors the configured space lacks."""
        if self.filled is None:
            return 0
        counts = self.filled
        return max(
            0,
            counts.all_events
            + counts.all_chains
            + counts.all_nodes
            - (counts.events + counts.chains + counts.nodes),
        )

    def describe_trouble(self) -> list[str]:
        """Sentences for the operator, each with the action to take; none if all is well."""
        if self.filled is None:
            return []
        sentences: list[str] = []
        if not self.is_reachable:
            sentences.append(
                f"The tenant's vectors are of {self.reads}, whose model is not configured: its"
                " questions are answered by the vectors of"
                f" {self.configured} as far as there are, else by words. Set"
                " STRANDLINE_PREVIOUS_EMBEDDING_PROVIDER and its companions to the model before."
            )
        if self.latest is not None and self.latest.failure is not None:
            sentences.append(
                f"The vectors of {self.configured} are not computed: {self.latest.failure} The"
                f" tenant goes on reading those of {self.reads}. The next sweep tries again:"
                " POST /api/v1/admin/jobs/sweeper starts one."
            )
        return sentences


def read_space_state(
    access: TenantDb,
    configured: Embedder,
    embedders: ReachableEmbedders,
    settings: ServiceSettings,
) -> SpaceState:
    """Read the state of the caller's tenant. Only while a space is filled it counts vectors."""
    space = store_spaces.read_space(access)
    is_filling = space.reading_space not in (None, configured.space)
    return SpaceState(
        reads=space.reading_space,
        configured=configured.space,
        is_reachable=embedders.find(configured, space.reading_space) is not None,
        is_held=(space.embedding_switch or settings.embedding_switch) == "held",
        filled=store_spaces.count_filled(access, configured.space) if is_filling else None,
        latest=store_spaces.read_latest_switch(access),
        usd_per_million=settings.embedding_usd_per_million,
    )


def count_tokens(characters: int) -> int:
    """About how many tokens so many characters are."""
    return round(characters / _CHARACTERS_PER_TOKEN)


def estimate_usd(state: SpaceState) -> tuple[float, float | None]:
    """What the switch that began last has cost so far, and about what the rest of it will, in USD:
    at the mean length of the texts so far. None where nothing was embedded yet."""
    latest = state.latest
    if latest is None:
        return 0.0, None
    spent = count_tokens(latest.characters) * state.usd_per_million / 1e6
    if not latest.texts:
        return spent, None
    return spent, spent / latest.texts * state.missing
