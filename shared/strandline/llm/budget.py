"""What language models may be asked for a tenant, and the ledger of what they were asked: leased
from the database in blocks and cached for seconds, so that no call pays a round trip."""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline.config import Settings
from strandline.db.database import Access, Asker, Database
from strandline.errors import Unavailable
from strandline.llm import store
from strandline.llm.store import Call
from strandline.llm.types import Task
from strandline.observability import logger

type Refusal = Literal["budget_spent", "rate_limited", "breaker_open", "unavailable"]
type Outcome = Literal["ok", "invalid_output", "format_refused", "refused", "late", "unavailable"]

CACHED_SECONDS = 5.0
_BLOCK = 10
"""Calls leased at once."""
_WRITTEN_AT = 50
"""So many calls are written down without waiting for who asked to be done."""
UNWRITTEN = 500
"""With so many calls that the database did not take no more are made."""
_SUBJECTS = 10_000
_OF_A_RUN = 4
"""Calls that a closed run takes, and its merge: where a minute holds fewer none comes through."""


class Refused(Exception):
    """No call is made; says why."""

    def __init__(self, reason: Refusal, again_in: float | None = None) -> None:
        super().__init__(reason)
        self.reason: Refusal = reason
        self.again_in = again_in
        """Seconds after which it would be, where waiting helps."""


@dataclass
class _Lease:
    """A subject's calls that this process may still make, until its minute ends."""

    units: int
    until: float
    over: bool
    """The minute gives no more."""


@dataclass
class _Account:
    """What this process knows of one tenant."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    known_at: float = -CACHED_SECONDS
    way: str | None = None
    failures: int = 0
    shut_until: float = 0.0
    spent: float = 0.0
    """USD, written down this month by all."""
    budget: float | None = None
    held: float = 0.0
    """USD that calls under way may cost."""
    calls: list[Call] = field(default_factory=list[Call])
    """Not written down yet."""
    leases: dict[str, _Lease] = field(default_factory=dict[str, _Lease])


class Meter:
    """One to a process; threads share it. Everything is a tenant's own: limits, breaker, budget.

    Calls a minute are exact over all processes. The budget is looked at before each call, by what
    the call may cost; processes learn of each other's calls when these are written down, so it is
    overrun at most by what the others ask within 5 s.
    """

    def __init__(self, database: Database, settings: Settings, model: str) -> None:
        self._database = database
        self._settings = settings
        self._model = model
        self._accounts: dict[str, _Account] = {}
        self._lock = threading.Lock()

    def _account(self, tenant: str) -> _Account:
        with self._lock:
            return self._accounts.setdefault(tenant, _Account())

    def begin(self, task: Task) -> str | None:
        """Before a task: the way that the model is known to take, if any. Raises Refused while it
        is left alone; afterwards one caller may try it, in the time of one answer."""
        account = self._account(task.tenant)
        with account.lock:
            trying = self._stale(account) and self._look(account, task, 0, may_try=True).trying
            if account.failures >= self._settings.llm_failures and not trying:
                raise Refused("breaker_open")
            return account.way

    def _stale(self, account: _Account) -> bool:
        """What is known is too old, or the provider has rested long enough."""
        now = time.monotonic()
        rested = account.failures >= self._settings.llm_failures and now >= account.shut_until
        return rested or now >= account.known_at + CACHED_SECONDS

    @contextmanager
    def spend(self, task: Task, tokens_in: int) -> Generator[None]:
        """One request, inside of the block, that shows the model about so many tokens. Raises
        Refused."""
        account = self._account(task.tenant)
        may_cost = self.cost(tokens_in, self._settings.llm_max_tokens)
        with account.lock:
            if len(account.calls) >= _WRITTEN_AT:
                self._write(account, self._access(task))
            if len(account.calls) >= UNWRITTEN:
                raise Refused("unavailable")
            unwritten = sum(call.cost_usd for call in account.calls)
            known = account.spent + account.held + unwritten
            if account.budget is not None and (
                account.budget <= known or account.budget < known + may_cost
            ):
                raise Refused("budget_spent")
            self._take(account, task)
            account.held += may_cost
        try:
            yield
        finally:
            with account.lock:
                account.held -= may_cost

    def cost(self, tokens_in: int, tokens_out: int) -> float:
        """What so many tokens cost, in USD."""
        prices = self._settings.llm_usd_per_million_in, self._settings.llm_usd_per_million_out
        return (tokens_in * prices[0] + tokens_out * prices[1]) / 1e6

    def _take(self, account: _Account, task: Task) -> None:
        """One of the subject's calls in this minute. A refusal is remembered until its end."""
        now = time.monotonic()
        lease = account.leases.get(task.subject)
        if lease is None or now >= lease.until or (lease.units == 0 and not lease.over):
            if len(account.leases) >= _SUBJECTS:
                account.leases.clear()
            got = self._look(account, task, _BLOCK)
            lease = _Lease(got.granted, now + got.seconds_left, over=got.granted == 0)
            account.leases[task.subject] = lease
        if lease.units == 0:
            helps = self._settings.llm_calls_per_minute >= _OF_A_RUN
            raise Refused("rate_limited", lease.until - now if helps else None)
        lease.units -= 1

    def _look(
        self, account: _Account, task: Task, most: int, *, may_try: bool = False
    ) -> store.Leased:
        """Lease `most` calls, and learn what the others did; write down what this process did."""
        self._write(account, self._access(task))
        ours = self._settings
        now = time.monotonic()
        got = store.lease(
            self._access(task),
            self._model,
            task.subject,
            most=most,
            limit=ours.llm_calls_per_minute,
            failures=ours.llm_failures,
            may_try=may_try,
            try_seconds=max(ours.llm_seconds, ours.llm_summary_seconds),
        )
        budget = ours.llm_usd_per_month if got.usd_per_month is None else got.usd_per_month
        account.way, account.failures = got.way, got.failures
        account.shut_until = now + got.shut_seconds
        account.spent, account.budget, account.known_at = got.spent_usd, budget, now
        return got

    def answered(self, task: Task, way: str) -> None:
        """The model gave an answer of use, asked in this way. Costs a round trip only where that is
        news."""
        account = self._account(task.tenant)
        with account.lock:
            if account.failures or account.way != way:
                store.note_answer(self._access(task), self._model, way)
                account.failures, account.way, account.shut_until = 0, way, 0.0

    def failed(self, task: Task) -> None:
        """The model gave no answer of use. All processes are told."""
        account, ours = self._account(task.tenant), self._settings
        with account.lock:
            state = store.note_failure(
                self._access(task), self._model, ours.llm_failures, ours.llm_rest_seconds
            )
            account.failures = state.failures
            account.shut_until = time.monotonic() + state.shut_seconds

    def record(
        self,
        task: Task,
        *,
        verb: str,
        prompt: str,
        outcome: Outcome,
        tokens_in: int,
        tokens_out: int,
        seconds: float,
    ) -> None:
        """Take a request into the ledger, and into the log in case that this process dies first."""
        account = self._account(task.tenant)
        call = Call(
            call_id=uuid7(),
            at=datetime.now(UTC) - timedelta(seconds=seconds),
            task=verb,
            model=self._model,
            prompt=prompt,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            cost_usd=self.cost(tokens_in, tokens_out),
            milliseconds=round(seconds * 1000, 1),
            outcome=outcome,
            scope_id=UUID(task.scope_id) if task.scope_id else None,
            job=task.job,
        )
        with account.lock:
            account.calls.append(call)
        logger.info("model call", extra={"tenant": task.tenant, "call": vars(call)})

    def flush(self, access: Access) -> None:
        """Write down the calls of the asker's tenant; outside of any transaction. Where the
        database is away they are kept for the next time, and the log says so."""
        account = self._account(access.asker.tenant)
        with account.lock:
            self._write(account, access)

    def _write(self, account: _Account, access: Access) -> None:
        if not account.calls:
            return
        try:
            store.record(access, account.calls)
        except Unavailable as error:  # after a doubt as well: a call written twice is there once
            logger.warning(
                "model calls not written down yet",
                extra={"calls": len(account.calls), "error": error.code},
            )
            return
        account.spent += sum(call.cost_usd for call in account.calls)
        account.calls = []

    def _access(self, task: Task) -> Access:
        return self._database.access(Asker.background(task.tenant), task.deadline)
