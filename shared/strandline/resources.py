"""The resources of one process: database, stores, queues and models, each created on first use."""

import functools
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, cast, overload

from strandline.auth.authenticator import Authenticator
from strandline.aws import secrets
from strandline.aws.blobs import BlobStore
from strandline.aws.run_requests import JobQueue, min_spacing_by_job
from strandline.aws.work_queue import WorkQueue
from strandline.clock import Clock, utc_now
from strandline.config import find_unknown_settings, get_settings
from strandline.db.database import Database
from strandline.embeddings.embedder import Embedder
from strandline.embeddings.factory import make_embedder
from strandline.embeddings.reachable import ReachableEmbedders
from strandline.errors import StrandlineError
from strandline.function_specs import FUNCTIONS
from strandline.llm.factory import make_provider, require_provider_settings
from strandline.observability import logger
from strandline.tenants.quotas import QuotaManager
from strandline.tenants.waits import WaitLimits

if TYPE_CHECKING:
    from strandline.llm.tasks import LlmTasks


class lazy_property[Value](functools.cached_property[Value]):
    """A property that is computed on first use and cached; one thread computes it while the others
    wait."""

    _lock = threading.RLock()

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Value: ...

    def __get__(self, instance: object, owner: type[Any] | None = None) -> Self | Value:
        with self._lock:
            return cast("Self | Value", super().__get__(instance, owner))


class Resources:
    """The resources of this process, created on first use and cached.

    In Lambda, the init phase loads the deployment's secrets and checks the settings: an
    unconfigured process does not start. With `load_auth` it also prepares authentication, and with
    `load_model` it loads the embedding model, because no caller waits yet.
    """

    def __init__(
        self,
        *,
        load_model: bool = False,
        load_auth: bool = False,
        warnings: Sequence[str] = (),
        clock: Clock = utc_now,
        embedder: Embedder | None = None,
    ) -> None:
        self.warnings = warnings
        """Warnings for the operator of this process; GET /api/v1/health shows them."""
        self.clock = clock
        """The clock of jobs, and of the run requests that they send."""
        if embedder is not None:  # a model that several share: one takes 100 MB
            self.__dict__["embedder"] = embedder
        if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
            secrets.load_secret_into_env(os.environ)
            require_provider_settings(get_settings())
            log_unknown_settings()
            if load_auth:
                _ = self.authenticator
            if load_model:
                self.warm_up_embedder()

    @lazy_property
    def database(self) -> Database:
        config = get_settings()
        return Database(config.database_url, config.database_auth, config.sealing_secret)

    @lazy_property
    def blobs(self) -> BlobStore:
        return BlobStore(get_settings().bucket)

    @lazy_property
    def work_queue(self) -> WorkQueue:
        return WorkQueue(get_settings().work_queue_url, self._request_sweep)

    def _request_sweep(self) -> bool:
        """Request a sweep soon. Returns whether the request is with the scheduler."""
        now = self.clock()
        return self.job_queue.request_run("sweeper", now, now)

    @lazy_property
    def job_queue(self) -> JobQueue:
        config = get_settings()
        return JobQueue(config.job_queue_url, min_spacing_by_job(config.sweep_seconds))

    @lazy_property
    def embedder(self) -> Embedder:
        return make_embedder(get_settings())

    @lazy_property
    def embedders(self) -> ReachableEmbedders:
        return ReachableEmbedders(get_settings())

    def embedder_of(self, reading_space: str | None) -> Embedder:
        """The embedding model for a tenant that reads this space: see
        `ReachableEmbedders.choose`."""
        return self.embedders.choose(self.embedder, reading_space)

    def warm_up_embedder(self) -> None:
        """Load the embedding model now, while no caller waits. If it is down the process starts
        nonetheless: recall answers without it."""
        try:
            self.embedder.embed(["warm"], timeout=5.0)
        except StrandlineError as error:
            failure = f"{error.code}: {error.message}"
            logger.warning("the embedding model does not answer", extra={"error": failure})

    def check_version(self, function_name: str) -> dict[str, object]:
        """Show that this version of a function works, before callers get it: its code is imported
        and its settings are checked by now, the database answers, and the embedding model that
        ships embeds a text. A model elsewhere is not asked: memory does without it meanwhile, and a
        release must be possible. Raises what fails."""
        self.database.connection().execute("select 1")
        layers = next(fn.layers for fn in FUNCTIONS if function_name.endswith(fn.name))
        embeds = "model" in layers and get_settings().embedding_provider == "local"
        if embeds:
            self.embedder.embed(["ping"], timeout=20.0)
        return {"database": True, "embedded": embeds}

    @lazy_property
    def authenticator(self) -> Authenticator:
        return Authenticator(self.database, get_settings())

    @lazy_property
    def quotas(self) -> QuotaManager:
        return QuotaManager(self.database, get_settings())

    @lazy_property
    def waits(self) -> WaitLimits:
        return WaitLimits(get_settings())

    @lazy_property
    def llm(self) -> "LlmTasks":
        # Imported here: functions that only write never call a language model, and would import the
        # heuristic model too.
        from strandline.llm.tasks import LlmTasks

        return LlmTasks(self.database, get_settings(), make_provider(get_settings()))


def log_unknown_settings() -> list[str]:
    """Log a warning for each variable of the environment that looks like a setting and is none.
    Returns the warnings."""
    warnings = find_unknown_settings(os.environ)
    for warning in warnings:
        logger.warning("unknown setting", extra={"warning": warning})
    return warnings
