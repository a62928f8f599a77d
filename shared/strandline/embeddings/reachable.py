"""The embedding models that this deployment can ask beside the configured one, by their spaces."""

import functools
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol, runtime_checkable

from strandline.config import ServiceSettings
from strandline.embeddings.embedder import (
    ENGLISH_DIMENSIONS,
    ENGLISH_MODEL,
    LOCAL_DIMENSIONS,
    LOCAL_MODEL,
    Embedder,
)
from strandline.embeddings.factory import make_embedder
from strandline.errors import EmbeddingUnavailable, Misconfigured
from strandline.observability import logger

_SHIPPED = {
    f"{ENGLISH_MODEL}/{ENGLISH_DIMENSIONS}": ENGLISH_MODEL,
    f"{LOCAL_MODEL}/{LOCAL_DIMENSIONS}": LOCAL_MODEL,
}
"""The local models by their spaces."""
_PREVIOUS = "previous_embedding_"


@runtime_checkable
class _Loadable(Protocol):
    def load(self) -> None: ...


class ReachableEmbedders:
    """Models by space: those that ship, and the one that was configured before. Safe for
    threads."""

    def __init__(self, settings: ServiceSettings | None) -> None:
        """Without settings no other model than the configured one is reachable."""
        self._settings = settings
        self._lock = threading.Lock()

    def choose(self, configured_embedder: Embedder, space: str | None) -> Embedder:
        """The model of a tenant that reads this space. The configured one where the tenant reads
        its space, has none yet, or has one whose model cannot be asked. A local model is loaded
        first, which takes a second once: no question that waits for it counts that time."""
        match = self.find(configured_embedder, space)
        if match is None or match is configured_embedder:
            return configured_embedder
        if isinstance(match, _Loadable):
            with suppress(EmbeddingUnavailable):  # whoever embeds gets the same error
                match.load()
        return match

    def find(self, configured_embedder: Embedder, space: str | None) -> Embedder | None:
        """Like `choose`, but None where the model of the space cannot be asked."""
        if space is None or space == configured_embedder.space:
            return configured_embedder
        if self._settings is None:
            return None
        with self._lock:
            return self._find_other(configured_embedder, self._settings, space)

    def _find_other(
        self, configured_embedder: Embedder, settings: ServiceSettings, space: str
    ) -> Embedder | None:
        if name := _SHIPPED.get(space):
            return _get_shipped(configured_embedder, name, settings.embedding_threads)
        previous = self._previous
        return previous if previous and previous.space == space else None

    @functools.cached_property
    def _previous(self) -> Embedder | None:
        settings = self._settings and read_previous_settings(self._settings)
        if settings is None:
            return None
        try:
            return make_embedder(settings)
        except Misconfigured as error:  # its tenants are told from health
            logger.warning("no previous embedding model", extra={"error": error.message})
            return None


def read_previous_settings(settings: ServiceSettings) -> ServiceSettings | None:
    """The settings with those of the previous embedding model as the model's own; None where no
    previous model is set."""
    previous: Mapping[str, object] = {
        f"embedding_{name.removeprefix(_PREVIOUS)}": getattr(settings, name)
        for name in ServiceSettings.model_fields
        if name.startswith(_PREVIOUS)
    }
    if previous["embedding_provider"] is None:
        return None
    return settings.model_copy(update=dict(previous))


def require_valid_previous(settings: ServiceSettings) -> None:
    """Raise Misconfigured when the settings of a previous model contradict each other, or lack
    something."""
    previous = read_previous_settings(settings)
    if previous is not None:
        try:
            make_embedder(previous)
        except Misconfigured as error:
            raise Misconfigured(f"STRANDLINE_PREVIOUS_EMBEDDING_*: {error.message}") from None


def _get_shipped(configured_embedder: Embedder, name: str, threads: int) -> Embedder:
    """A local model. The English one is part of the other: loaded once, it serves both."""
    from strandline.embeddings.local import LocalEmbedder

    if name == ENGLISH_MODEL and isinstance(configured_embedder, LocalEmbedder):
        return configured_embedder.english
    return _make_shipped(name, threads)


@functools.cache
def _make_shipped(name: str, threads: int) -> Embedder:
    if name == ENGLISH_MODEL:
        from strandline.embeddings.minilm import EnglishEmbedder

        return EnglishEmbedder(threads=threads)
    from strandline.embeddings.local import LocalEmbedder

    return LocalEmbedder(threads=threads)
