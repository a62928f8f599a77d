"""HTTP routes of health, and of a tenant's counters in Prometheus' text format (exposition format
0.0.4)."""

from dataclasses import dataclass

from strandline.auth.principals import RIGHTS, Principal
from strandline.config import get_settings
from strandline.db.database import Caller, TenantDb
from strandline.errors import StrandlineError
from strandline.http.request import Request
from strandline.http.routes_and_responses import (
    AnswerMediaType,
    Response,
    Route,
    json_response,
    text_response,
)
from strandline.llm import store_calls
from strandline.llm.client import CHARACTERS_PER_TOKEN
from strandline.llm.store_calls import ModelAvailability, MonthlySpend, read_model_availability
from strandline.log import store_tenant_counts
from strandline.resources import Resources
from strandline.status import store
from strandline.status.schemas import (
    BackgroundState,
    CallerState,
    Health,
    LanguageModelState,
    Liveness,
    MemoryState,
)
from strandline.tenants.space_state import SpaceState, read_space_state

_METRICS_TYPE = AnswerMediaType("text/plain; version=0.0.4")
_METRICS = (
    ("strandline_events_total", "counter", "Events ever appended.", "events"),
    ("strandline_scopes", "gauge", "Scopes.", "scopes"),
    ("strandline_stored_bytes", "gauge", "Content, metadata and payloads.", "stored_bytes"),
    ("strandline_events_not_embedded", "gauge", "Events without a vector.", "events_not_embedded"),
    ("strandline_events_not_folded", "gauge", "Events not folded yet.", "events_not_folded"),
    ("strandline_chains_active", "gauge", "Chains in mid-term memory.", "chains_active"),
    ("strandline_chains_rejected", "gauge", "Chains that were rejected.", "chains_rejected"),
    ("strandline_chains_archived", "gauge", "Chains that were archived.", "chains_archived"),
    ("strandline_recalls_not_folded", "gauge", "Recalls of chains to fold.", "recalls_not_folded"),
    (
        "strandline_oldest_recall_age_seconds",
        "gauge",
        "Age of the oldest recall to fold.",
        "oldest_recall_seconds",
    ),
    ("strandline_scopes_due", "gauge", "Scopes whose background work is due.", "scopes_due"),
    (
        "strandline_scopes_stuck",
        "gauge",
        "Scopes whose background work was postponed five times in a row.",
        "scopes_stuck",
    ),
    (
        "strandline_oldest_due_age_seconds",
        "gauge",
        "How long the oldest background work has been due.",
        "oldest_due_seconds",
    ),
    (
        "strandline_oldest_not_embedded_age_seconds",
        "gauge",
        "Age of the oldest event without a vector.",
        "unembedded_seconds",
    ),
    (
        "strandline_oldest_not_folded_age_seconds",
        "gauge",
        "Age of the oldest event not folded yet.",
        "unfolded_seconds",
    ),
    ("strandline_snapshot_version", "gauge", "Active topic index version.", "snapshot_version"),
    (
        "strandline_snapshot_age_seconds",
        "gauge",
        "Age of the active topic index version.",
        "snapshot_seconds",
    ),
    (
        "strandline_chains_not_indexed",
        "gauge",
        "Chain versions that the topic index lacks.",
        "chains_not_indexed",
    ),
    (
        "strandline_oldest_not_indexed_age_seconds",
        "gauge",
        "How long the oldest chain version has waited for the topic index.",
        "unindexed_seconds",
    ),
    ("strandline_erasures_waiting", "gauge", "Erasures not complete yet.", "erasures_waiting"),
    (
        "strandline_oldest_erasure_age_seconds",
        "gauge",
        "Age of the oldest erasure not complete yet.",
        "oldest_erasure_seconds",
    ),
    (
        "strandline_rows_unreadable",
        "gauge",
        "Rows with a time that cannot be shown as it is.",
        "rows_unreadable",
    ),
    (
        "strandline_vectors_to_fill",
        "gauge",
        "Vectors that a new embedding space lacks before it is read.",
        "vectors_to_fill",
    ),
    ("strandline_jobs_failed", "gauge", "Jobs failed and not tried again.", "jobs_failed"),
    ("strandline_breakers_open", "gauge", "Models with an open circuit breaker.", "breakers_open"),
    ("strandline_model_calls_month", "gauge", "Requests to models this month.", "model_calls"),
    ("strandline_model_usd_month", "gauge", "Cost of models this month, in USD.", "model_usd"),
)
"""The metrics: name, type, help text, and the field with the value."""


def render_tenant_metrics(access: TenantDb, space: str, vectors_to_fill: int) -> str:
    """Render the tenant's counters in Prometheus' text format. `space` is the embedding space that
    it reads. There are no labels: the credential determines the tenant."""
    due_work, model_spend = (
        store_tenant_counts.read_due_work(access, space),
        store_calls.read_monthly_spend(access),
    )
    values: dict[str, float] = {
        **vars(store_tenant_counts.read_tenant_counters(access, space)),
        **vars(store.read_topic_index_counts(access)),
        "scopes_due": due_work.scopes,
        "scopes_stuck": due_work.stuck_scopes,
        "oldest_due_seconds": due_work.seconds,
        "unembedded_seconds": due_work.unembedded_seconds,
        "unfolded_seconds": due_work.unfolded_seconds,
        "erasures_waiting": due_work.erasures,
        "oldest_erasure_seconds": due_work.erasure_seconds,
        "rows_unreadable": store_tenant_counts.count_background_failures(access).rows_unreadable,
        "vectors_to_fill": vectors_to_fill,
        "model_calls": model_spend.calls,
        "model_usd": model_spend.cost_usd,
    }
    return "".join(
        f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n{name} {values[field]}\n"
        for name, kind, help_text, field in _METRICS
    )


def liveness(request: Request) -> Response:
    """Check that the process responds. It does not use the database, because frequent checks would
    keep the database from pausing."""
    del request
    return json_response(Liveness())


def health(request: Request) -> Response:
    """Check the service's dependencies. Returns 200, or 503 if memory cannot be served. Requires a
    key that this deployment made, but does not look it up in the database."""
    resources = request.resources
    statuses, embedding_trouble = _check_dependencies(request)
    is_up = statuses["database"] == "ok"
    tenant_state = _read_tenant_state(request) if is_up else _NOTHING_KNOWN
    background, model = tenant_state.background, tenant_state.model
    needs_operator = background and (background.scopes_stuck or background.rows_unreadable)
    space_trouble = tenant_state.space.describe_trouble() if tenant_state.space else []
    is_healthy = set(statuses.values()) == {"ok"} and not (
        needs_operator or model.resting_until or space_trouble
    )
    status = "ok" if is_healthy else "degraded" if is_up else "unavailable"
    headers = {} if is_up else {"Retry-After": "2"}
    name = resources.llm.model_name
    body = Health(
        status=status,
        dependencies=statuses,
        language=LanguageModelState(
            provider=name,
            failure=model.failure_text,
            failed_at=model.failed_at,
            resting_until=model.resting_until,
        ),
        caller=tenant_state.caller,
        background=background,
        memory=tenant_state.memory,
        warnings=[
            *resources.warnings,
            *_describe_model_failure(name, model),
            *_describe_spent_budget(tenant_state.spend),
            *embedding_trouble,
            *space_trouble,
        ],
    )
    return json_response(body, 200 if is_up else 503, headers)


def _check_dependencies(request: Request) -> tuple[dict[str, str], list[str]]:
    """`ok` or an error code for each dependency, and what the embedding model's failure was."""
    resources = request.resources
    checks = {
        "database": lambda: resources.database.connection(request.deadline),
        "blobs": resources.blobs.check,
        "queue": resources.work_queue.check,
        "embedding": lambda: resources.embedder.embed(["health"], timeout=2.0),
    }
    statuses: dict[str, str] = {}
    warnings: list[str] = []
    for name, check in checks.items():
        try:
            check()
            statuses[name] = "ok"
        except StrandlineError as error:
            statuses[name] = error.code
            if name == "embedding":
                warnings.append(
                    f"The embedding model gives no vectors: {error.message} What has none is"
                    " found by its words alone."
                )
        except Exception as error:  # a dependency's failure is reported, not raised
            statuses[name] = type(error).__name__
    return statuses, warnings


@dataclass(frozen=True)
class _TenantState:
    """What is told of the credential's tenant."""

    caller: CallerState | None
    background: BackgroundState | None
    model: ModelAvailability
    memory: MemoryState | None
    space: SpaceState | None
    spend: MonthlySpend | None
    """Of language models; None without one, and for who is no admin."""


_NOTHING_KNOWN = _TenantState(None, None, ModelAvailability(None, None, None), None, None, None)


def _read_tenant_state(request: Request) -> _TenantState:
    """The state of the credential's tenant; nothing is known if the credential is not valid or the
    database failed."""
    resources = request.resources
    try:
        principal = request.authenticate_without_lookup()
        caller = Caller.background(principal.tenant)
        access = resources.database.connect_as(caller, request.deadline)
        name = resources.llm.model_name
        is_admin = principal.has_right("admin")
        return _TenantState(
            _describe_caller(principal),
            BackgroundState(**vars(store_tenant_counts.count_background_failures(access))),
            _NOTHING_KNOWN.model if name is None else read_model_availability(access, name),
            store.count_tenant_memory(access) if is_admin else None,
            _read_space_state(resources, access),
            store_calls.read_monthly_spend(access) if is_admin and name is not None else None,
        )
    except StrandlineError:
        return _NOTHING_KNOWN


def _describe_caller(principal: Principal) -> CallerState:
    return CallerState(
        tenant=principal.tenant,
        user=principal.user,
        rights=[right for right in RIGHTS if right in principal.rights],
        key_id=principal.key_id or None,
        may_read_everybody=principal.may_read_everybody,
        agents_share=principal.agents_share,
    )


def _read_space_state(resources: Resources, access: TenantDb) -> SpaceState:
    return read_space_state(access, resources.embedder, resources.embedders, get_settings())


def _describe_model_failure(name: str | None, model: ModelAvailability) -> list[str]:
    if model.failure_text is None or model.failed_at is None:
        return []
    return [
        f"The language model {name} failed at {model.failed_at:%Y-%m-%d %H:%M} UTC:"
        f" {model.failure_text} The heuristic model answers while it fails."
    ]


def _describe_spent_budget(spend: MonthlySpend | None) -> list[str]:
    """A warning where a request of the greatest length would go over the tenant's budget."""
    settings = get_settings()
    if spend is None:
        return []
    budget = settings.llm_usd_per_month if spend.usd_per_month is None else spend.usd_per_month
    tokens_in = settings.llm_characters // CHARACTERS_PER_TOKEN
    longest_usd = (
        tokens_in * settings.llm_usd_per_million_in
        + settings.llm_max_tokens * settings.llm_usd_per_million_out
    ) / 1e6
    # What costs nothing is not asked of a budget that is used up, either: 0 allows nothing.
    if budget is None or (budget > spend.cost_usd and budget >= spend.cost_usd + longest_usd):
        return []
    return [
        f"The budget for language models is spent: {spend.cost_usd:.4g} of {budget:.4g} USD. The"
        " heuristic model answers until the month (UTC) ends, unless an operator raises the"
        " tenant's model_usd_per_month or STRANDLINE_LLM_USD_PER_MONTH."
    ]


def get_metrics(request: Request) -> Response:
    """Get the tenant's counters for Prometheus: stored data and pending work. They cover the whole
    tenant, even if the key is bound to a user."""
    resources = request.resources
    access = resources.database.connect_as(
        Caller.background(request.principal.tenant), request.deadline
    )
    missing = _read_space_state(resources, access).missing
    text = render_tenant_metrics(access, request.embedder.space, missing)
    return text_response(text, _METRICS_TYPE)


ROUTES = {
    "GET /health": Route(liveness, None, {200: Liveness}),
    "GET /api/v1/health": Route(health, "issued", {200: Health, 503: Health}),
    "GET /metrics": Route(get_metrics, "admin", {200: _METRICS_TYPE}, audits_refusals_only=True),
}
