"""Checks for contradictory settings of a deployment; each message names a remedy."""

from collections.abc import Callable

from infra.settings import StackSettings
from strandline.config import PREFIX, ServiceSettings
from strandline.function_specs import FUNCTIONS

_STACK_OWNED_SETTINGS = (
    *("database_url", "database_auth", "owner_database_url", "administrator_database_url"),
    *(
        "secrets",
        "administrator_secret",
        "first_key_secret",
        "bucket",
        "work_queue_url",
        "job_queue_url",
    ),
    *("state_machine", "schedule_group", "scheduler_role", "cors_origins", "client_certificates"),
)
_MAX_ENVIRONMENT_BYTES = 2560
"""Bytes available for settings. AWS Lambda allows 4,096 for all variables of a function, and the
stack's own take the rest; `migrate` has most: two addresses, three ARNs, a queue."""


def _find_service_settings_fault(settings: StackSettings) -> str | None:
    secret_names = [n for n in settings.settings if is_secret_setting_name(n)]
    if secret_names:
        return (
            f"settings.{secret_names[0]} is a secret and would stand in the template: put it "
            "into the secret that the stack makes (output Secrets), and leave it out here"
        )
    stack_owned = [n for n in settings.settings if n in _STACK_OWNED_SETTINGS]
    if stack_owned:
        return f"settings.{stack_owned[0]} is set by the stack itself: leave it out"
    unknown = [n for n in settings.settings if n not in ServiceSettings.model_fields]
    if unknown:
        return (
            f"settings.{unknown[0]} is no setting of the service: "
            "docs/configuration.md, Service settings, has them all"
        )
    size = sum(len(f"{PREFIX}{n}{v}".encode()) for n, v in settings.service_environment.items())
    if size > _MAX_ENVIRONMENT_BYTES:
        longest = max(settings.settings, key=lambda n: len(str(settings.settings[n])))
        return (
            f"settings are {size} bytes, and {_MAX_ENVIRONMENT_BYTES} are available beside the "
            f"stack's own variables (4096 in all): put {longest} into the secret (output "
            "Secrets), or give its address if it has one"
        )
    return None


def _find_authentication_fault(settings: StackSettings) -> str | None:
    """Rejects incomplete authentication settings."""
    jwt = [n for n in settings.settings if n.startswith("jwt_")]
    if jwt and not {"jwt_issuer", "jwt_audience"} <= settings.settings.keys():
        return f"settings.{jwt[0]} needs settings.jwt_issuer and settings.jwt_audience beside it"
    certificates = settings.domain and settings.domain.mutual_tls
    if str(settings.settings.get("auth_require_all", "")).lower() in ("true", "1") and not (
        jwt or certificates
    ):
        return (
            "settings.auth_require_all: there is no second method; set jwt_issuer and "
            "jwt_audience, or domain.mutual_tls"
        )
    return None


def _find_network_fault(settings: StackSettings) -> str | None:
    if (settings.network == "existing") != (settings.vpc is not None):
        return "network is existing if and only if vpc names the network: set both or neither"
    if settings.vpc and settings.cidr != StackSettings.model_fields["cidr"].default:
        return "cidr is of the VPC that the stack creates: leave it out beside vpc"
    if settings.private and not settings.vpc_endpoint_ids:
        return "private needs vpc_endpoint_ids, the execute-api endpoints that may call the API"
    return None


def _find_engine_version_fault(settings: StackSettings) -> str | None:
    if settings.engine_version.partition(".")[0] != "18":
        return "engine_version: Postgres 18 is the version that is tested: set 18.4 or a later 18"
    return None


def _find_profile_models_fault(settings: StackSettings) -> str | None:
    if ":application-inference-profile/" in str(settings.settings.get("llm_model", "")) and not (
        settings.profile_models
    ):
        return (
            "settings.llm_model is an application inference profile, whose model is not known: "
            "set profile_models to the ARNs of the models that it calls"
        )
    return None


def _find_private_domain_fault(settings: StackSettings) -> str | None:
    if settings.private and settings.domain:
        feature = (
            "mutual TLS" if settings.domain.mutual_tls else "a custom domain of a regional API"
        )
        return (
            f"private and domain: a private API cannot have {feature}; "
            "set private to false, or leave out domain"
        )
    return None


def _find_proxy_pause_fault(settings: StackSettings) -> str | None:
    if settings.proxy and settings.can_pause:
        return (
            "proxy and min_capacity 0: a proxy keeps connections open, so the database would never "
            "pause; set min_capacity to 0.5 or more, or proxy to false"
        )
    return None


def _find_capacity_fault(settings: StackSettings) -> str | None:
    if settings.min_capacity > settings.max_capacity:
        return "min_capacity is over max_capacity: raise max_capacity"
    if settings.min_capacity < 1 and (settings.max_connections or 0) > 2000:
        return "max_connections is at most 2000 where min_capacity is under 1: raise min_capacity"
    return None


def _find_tenant_throttle_fault(settings: StackSettings) -> str | None:
    """Rejects a gateway that one tenant can close to the others within its own limits."""
    service = settings.service_settings
    rate = service.tenant_requests_per_minute / 60
    if rate > settings.request_rate:
        return (
            f"throttle_rate: a tenant may send {rate:g} requests a second, and the API accepts "
            f"{settings.request_rate:g} from all together: lower "
            "settings.tenant_requests_per_minute, or raise throttle_rate"
        )
    at_once = rate * service.tenant_burst_seconds
    if at_once > settings.request_burst:
        return (
            f"throttle_burst: a tenant may send {at_once:g} requests at once, and the API accepts "
            f"at most {settings.request_burst}: lower settings.tenant_burst_seconds, or raise "
            "throttle_burst"
        )
    if 0 < settings.max_request_instances < settings.request_burst:
        return (
            f"throttle_burst is {settings.request_burst}, and no function of the API may have more "
            f"than {settings.max_request_instances} instances: lower it, or raise reserved"
        )
    return None


def _find_firewall_fault(settings: StackSettings) -> str | None:
    rate = settings.firewall_rate
    if rate and settings.firewall is not True:
        return "firewall_rate is of the firewall that the stack creates: set firewall to true"
    if rate and rate >= settings.request_rate:
        return (
            f"firewall_rate: one address may send {rate:g} requests a second, and the API accepts "
            f"{settings.request_rate:g} from all together: lower it, or raise throttle_rate"
        )
    return None


def _find_egress_fault(settings: StackSettings) -> str | None:
    """Rejects services outside AWS, or without a VPC endpoint, if there is no egress."""
    if settings.network != "endpoints":
        return None
    for name, alternative in _EGRESS_ALTERNATIVES.items():
        value = str(settings.settings.get(name, ""))
        if value.startswith("http") or value in ("openai", "azure"):
            label = f"settings.{name}" + ("" if value.startswith("http") else f"={value}")
            return (
                f"network=endpoints has no way out for {label}: set network to nat (or existing), "
                f"or {alternative}"
            )
    for name in ("embedding_region", "previous_embedding_region"):
        if name in settings.settings:
            return (
                f"network=endpoints has no way out for settings.{name}: the endpoint of Bedrock is "
                "that of the stack's Region; set network to nat (or existing), or leave "
                f"{name} out"
            )
    return None


_EGRESS_ALTERNATIVES = {
    "llm_base_url": "choose bedrock",
    "llm_provider": "choose bedrock",
    "embedding_base_url": "take the model that ships, or bedrock",
    "embedding_provider": "take the model that ships, or bedrock",
    "previous_embedding_base_url": "leave it out: answers go by words until the new space is full",
    "previous_embedding_provider": "leave it out: answers go by words until the new space is full",
    "jwt_jwks": "give the keys themselves, a JWK Set as JSON",
}
"""Settings that may name an external service, and the alternative to each."""


_MAX_CONNECTION_SHARE = 0.6
"""Share of the database's connections that functions may hold. The rest is for migrations, people,
and instances that are being replaced."""


def _find_connection_count_fault(settings: StackSettings) -> str | None:
    """Every instance of a function may hold its connections; behind a proxy they may be pinned."""
    names = {fn.name for fn in FUNCTIONS}
    unknown = sorted(set(settings.reserved) - names)
    if unknown:
        return f"reserved.{unknown[0]} is no function: there are {', '.join(sorted(names))}"
    uses_llm = settings.settings.get("llm_provider", "none") != "none"
    connections = {
        fn.name: settings.reserved_concurrency(fn)
        * (fn.connections_per_instance if uses_llm else 1)
        for fn in FUNCTIONS
        if fn.needs & {"database", "owner"}
    }
    if settings.account_concurrency:
        return _find_trial_fault(settings, uses_llm=uses_llm)
    without_reserve = [name for name, count in connections.items() if count < 1]
    if without_reserve:
        return (
            f"reserved.{without_reserve[0]} must be 1 or more: without it the function could take "
            "all of the database's connections"
        )
    allowed = int(_MAX_CONNECTION_SHARE * settings.max_database_connections)
    total = sum(connections.values())
    if total > allowed:
        return (
            f"reserved: the functions with a database may hold {total} connections, "
            f"over {_MAX_CONNECTION_SHARE:.0%} of the {settings.max_database_connections} that it "
            f"accepts at max_capacity {settings.max_capacity:g}: reserve at most {allowed} "
            "together, or raise max_capacity (or max_connections)"
        )
    return None


def _find_trial_fault(settings: StackSettings, *, uses_llm: bool) -> str | None:
    """Without reservations any function may take the whole quota, each instance its connections."""
    quota = settings.account_concurrency or 0
    most = max(fn.connections_per_instance for fn in FUNCTIONS) if uses_llm else 1
    allowed = int(_MAX_CONNECTION_SHARE * settings.max_database_connections)
    if settings.reserved:
        return "account_concurrency is of a trial without reservations: leave out one of the two"
    if quota * most > allowed:
        return (
            f"account_concurrency: {quota} instances may hold {quota * most} connections, and "
            f"functions may hold {allowed} at max_capacity {settings.max_capacity:g}: leave "
            "account_concurrency out, so that functions reserve theirs, or raise max_capacity"
        )
    return None


type _Check = Callable[[StackSettings], str | None]
CHECKS: tuple[_Check, ...] = (
    *(
        _find_service_settings_fault,
        _find_authentication_fault,
        _find_profile_models_fault,
        _find_egress_fault,
        _find_network_fault,
        _find_private_domain_fault,
    ),
    *(
        _find_proxy_pause_fault,
        _find_engine_version_fault,
        _find_capacity_fault,
        _find_connection_count_fault,
        _find_tenant_throttle_fault,
    ),
    _find_firewall_fault,
)
"""Each check returns an error message, or None."""


def find_warning(settings: StackSettings) -> str | None:
    """What somebody who deploys should know, though it can be deployed."""
    if settings.alarms.usd_per_month and not (settings.alarms.email or settings.alarms.topic_arn):
        return "the alarms and the budget notify nobody: set alarms.email or alarms.topic_arn"
    return None


def is_secret_setting_name(name: str) -> bool:
    """Whether a setting of the service is a secret, by its name."""
    return name.endswith(("_secret", "_api_key", "_password", "_token"))
