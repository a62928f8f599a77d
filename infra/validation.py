"""What does not go together in a deployment's settings, and the way out of each."""

from collections.abc import Callable

from infra.settings import StackSettings
from strandline.config import PREFIX
from strandline.config import Settings as ServiceSettings
from strandline.deployment import FUNCTIONS

_MADE_BY_THE_STACK = (
    *("database_url", "database_auth", "owner_database_url", "administrator_database_url"),
    *("secrets", "administrator_secret", "first_key_secret", "bucket", "queue_url", "runs_url"),
    *("state_machine", "wakeup_group", "wakeup_role", "cors_origins", "client_certificates"),
)
_ENVIRONMENT = 2560
"""Bytes of settings. AWS Lambda takes 4,096 of a function's variables together; of the stack's own,
`migrate` has most: two addresses, three ARNs, a queue."""


def _service(s: StackSettings) -> str | None:
    secret = [n for n in s.settings if is_secret(n)]
    if secret:
        return (
            f"settings.{secret[0]} is a secret and would stand in the template: put it into the "
            "secret that the stack makes (output Secrets), and leave it out here"
        )
    ours = [n for n in s.settings if n in _MADE_BY_THE_STACK]
    if ours:
        return f"settings.{ours[0]} is set by the stack itself: leave it out"
    unknown = [n for n in s.settings if n not in ServiceSettings.model_fields]
    if unknown:
        return (
            f"settings.{unknown[0]} is no setting of the service: "
            "docs/configuration.md, Service settings, has them all"
        )
    told = sum(len(f"{PREFIX}{n}{v}".encode()) for n, v in s.plain_settings.items())
    if told > _ENVIRONMENT:
        longest = max(s.settings, key=lambda n: len(str(s.settings[n])))
        return (
            f"settings are {told} bytes, and a function can be told {_ENVIRONMENT} beside what "
            f"the stack tells it (4096 in all): put {longest} into the secret (output Secrets), or "
            "give its address if it has one"
        )
    return None


def _ways_in(s: StackSettings) -> str | None:
    """What would be half of a way in."""
    jwt = [n for n in s.settings if n.startswith("jwt_")]
    if jwt and not {"jwt_issuer", "jwt_audience"} <= s.settings.keys():
        return f"settings.{jwt[0]} needs settings.jwt_issuer and settings.jwt_audience beside it"
    certificates = s.domain and s.domain.mutual_tls
    if str(s.settings.get("auth_require_all", "")).lower() in ("true", "1") and not (
        jwt or certificates
    ):
        return (
            "settings.auth_require_all: there is no second way in; set jwt_issuer and "
            "jwt_audience, or domain.mutual_tls"
        )
    return None


def _network(s: StackSettings) -> str | None:
    if (s.network == "existing") != (s.vpc is not None):
        return "network is existing if and only if vpc names the network: set both or neither"
    if s.private and not s.vpc_endpoint_ids:
        return "private needs vpc_endpoint_ids, the execute-api endpoints that may call the API"
    return None


def _engine(s: StackSettings) -> str | None:
    major, minor = map(int, s.engine_version.split("."))
    if major == 17 and minor < 4:
        return "engine_version: Aurora's first 17 is 17.4: take that or a later one"
    return None


def _told(s: StackSettings) -> str | None:
    if s.alarms.usd_per_month and not (s.alarms.email or s.alarms.topic_arn):
        return "alarms.usd_per_month has nobody to tell: set alarms.email or alarms.topic_arn"
    return None


def _model(s: StackSettings) -> str | None:
    if ":application-inference-profile/" in str(s.settings.get("llm_model", "")) and not (
        s.profile_models
    ):
        return (
            "settings.llm_model is an application inference profile, which does not say its model: "
            "set profile_models to the ARNs of the models that it calls"
        )
    return None


def _mutual_tls(s: StackSettings) -> str | None:
    if s.private and s.domain:
        what = "mutual TLS" if s.domain.mutual_tls else "a custom domain of a regional API"
        return (
            f"private and domain: a private API cannot have {what}; "
            "set private to false, or leave out domain"
        )
    return None


def _proxy(s: StackSettings) -> str | None:
    if s.proxy and s.pauses:
        return (
            "proxy and min_capacity 0: a proxy keeps connections open, so the database would never "
            "pause; set min_capacity to 0.5 or more, or proxy to false"
        )
    return None


def _capacity(s: StackSettings) -> str | None:
    if s.min_capacity > s.max_capacity:
        return "min_capacity is over max_capacity: raise max_capacity"
    if s.min_capacity < 1 and (s.max_connections or 0) > 2000:
        return "max_connections is at most 2000 where min_capacity is under 1: raise min_capacity"
    return None


def _way_out(s: StackSettings) -> str | None:
    """What the functions call outside AWS, or in it without an endpoint of ours."""
    if s.network != "endpoints":
        return None
    for name, instead in _INSIDE.items():
        value = str(s.settings.get(name, ""))
        if value.startswith("http") or value in ("openai", "azure"):
            told = f"settings.{name}" + ("" if value.startswith("http") else f"={value}")
            return (
                f"network=endpoints has no way out for {told}: set network to nat (or existing), "
                f"or {instead}"
            )
    return None


_INSIDE = {
    "llm_base_url": "choose bedrock",
    "llm_provider": "choose bedrock",
    "embedding_base_url": "take the model that ships",
    "embedding_provider": "take the model that ships",
    "jwt_jwks": "give the keys themselves, a JWK Set as JSON",
}
"""Settings that may lie outside, and what to do instead."""


_CONNECTIONS_USED = 0.6
"""The part of the database's connections that functions may hold; the rest is for migrations,
people, and instances that are being replaced."""


def _connections(s: StackSettings) -> str | None:
    """Every instance of a function may hold its connections, pinned if there is a proxy."""
    names = {fn.name for fn in FUNCTIONS}
    strange = sorted(set(s.reserved) - names)
    if strange:
        return f"reserved.{strange[0]} is no function: there are {', '.join(sorted(names))}"
    asks = s.settings.get("llm_provider", "none") != "none"
    needed = {
        fn.name: s.reserved_for(fn) * (fn.connections if asks else 1)
        for fn in FUNCTIONS
        if fn.needs & {"database", "owner"}
    }
    unbounded = [name for name, connections in needed.items() if connections < 1]
    if unbounded:
        return (
            f"reserved.{unbounded[0]} must be 1 or more: without it the function could take all of "
            "the database's connections"
        )
    allowed = int(_CONNECTIONS_USED * s.database_connections)
    if sum(needed.values()) > allowed:
        return (
            f"reserved: the functions with a database may hold {sum(needed.values())} connections, "
            f"over {_CONNECTIONS_USED:.0%} of the {s.database_connections} that it takes at "
            f"max_capacity {s.max_capacity:g}: reserve at most {allowed} together, or raise "
            "max_capacity (or max_connections)"
        )
    return None


type _Refusal = Callable[[StackSettings], str | None]
REFUSALS: tuple[_Refusal, ...] = (
    *(_service, _ways_in, _model, _way_out, _network, _mutual_tls),
    *(_proxy, _engine, _capacity, _connections, _told),
)
"""Each gives the words of its refusal, or nothing."""


def is_secret(name: str) -> bool:
    """Whether a setting of the service is a secret, by its name."""
    return name.endswith(("_secret", "_api_key", "_password", "_token"))
