"""What one process works with: its database, stores, queue and model, made on first use."""

import functools
import os
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from strandline.auth.authenticator import Authenticator
from strandline.aws import secrets
from strandline.aws.blobs import Blobs
from strandline.aws.run_requests import SPACING, Runs
from strandline.aws.work_queue import Hints
from strandline.clock import Clock, utc_now
from strandline.config import settings
from strandline.db.database import Database
from strandline.embeddings.choice import make_embedder
from strandline.embeddings.embedder import Embedder
from strandline.errors import StrandlineError
from strandline.llm.choice import make_provider, require_provider
from strandline.observability import logger
from strandline.tenants.quotas import Quotas

if TYPE_CHECKING:
    from strandline.llm.tasks import Reasoner


class once[Value](functools.cached_property[Value]):
    """A property made on first use and kept, by one thread while the others wait."""

    _making = threading.RLock()

    def __get__(self, instance: object, owner: type[Any] | None = None) -> Any:
        with self._making:
            return super().__get__(instance, owner)


class Service:
    """What this process works with, made on first use and kept.

    In Lambda the init phase, in which nobody waits yet, reads the deployment's secrets, checks the
    settings (a process that is not configured does not start), readies what callers of an API are
    asked for, and loads the model of a function that has one.
    """

    def __init__(
        self,
        *,
        model: bool = False,
        api: bool = False,
        warnings: Sequence[str] = (),
        clock: Clock = utc_now,
    ) -> None:
        self.warnings = warnings
        """What whoever runs this process should know; GET /api/v1/health says it."""
        self.clock = clock
        """By which jobs, and what they wish for, come due."""
        if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
            secrets.adopt(os.environ)
            require_provider(settings())
            if api:
                _ = self.authenticator
            if model:
                self.warm()

    @once
    def database(self) -> Database:
        known = settings()
        return Database(known.database_url, known.database_auth, known.sealing_secret)

    @once
    def blobs(self) -> Blobs:
        return Blobs(settings().bucket)

    @once
    def hints(self) -> Hints:
        return Hints(settings().queue_url, self._sweep)

    def _sweep(self) -> bool:
        """Have a sweep begin soon; gives whether somebody was told."""
        now = self.clock()
        return self.runs.wish("sweeper", now, now)

    @once
    def runs(self) -> Runs:
        sweep = timedelta(seconds=settings().sweep_seconds)
        return Runs(settings().runs_url, {**SPACING, "sweeper": sweep})

    @once
    def embedder(self) -> Embedder:
        return make_embedder(settings())

    def warm(self) -> None:
        """Load the model now, where nobody waits for it. One that is away is no reason not to
        start: recall answers without it."""
        try:
            self.embedder.embed(["warm"], timeout=5.0)
        except StrandlineError as error:
            logger.warning("the embedding model does not answer", extra={"error": error.code})

    @once
    def authenticator(self) -> Authenticator:
        return Authenticator(self.database, settings())

    @once
    def quotas(self) -> Quotas:
        return Quotas(self.database, settings())

    @once
    def reasoner(self) -> "Reasoner":
        # Here and not above: what only writes never reasons, and would import the twin.
        from strandline.llm.tasks import Reasoner

        return Reasoner(self.database, settings(), make_provider(settings()))
