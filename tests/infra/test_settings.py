"""What a deployment is told: stages, what is refused, and in which words."""

import json
from collections.abc import Mapping
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from infra import prices, validation
from infra.load_settings import build_valid_settings, load_stage_settings
from infra.settings import SettingsError, StackSettings
from strandline.function_specs import FUNCTIONS, JOBS
from strandline.log.schemas_append import MAX_BATCH
from tests.infra.cdk_context import ROOT, context
from tests.infra.stacks import FIREWALL, VARIANTS

CERTIFICATE = "arn:aws:acm:eu-west-1:111122223333:certificate/c"
TRUST = {"truststore_uri": "s3://authorities/ca.pem", "truststore_version": "1"}
ASKS = {"llm_provider": "bedrock", "llm_model": "m"}
VECTORS: Mapping[str, Any] = {
    "embedding_provider": "bedrock",
    "embedding_model": "eu.cohere.embed-v4:0",
    "embedding_dimensions": 1024,
}
BUSY = {"reserved": {"worker": 55}}
PRIVATE = {"private": True, "vpc_endpoint_ids": ["vpce-0123456789abcdef0"]}


def make_domain(**more: object) -> dict[str, object]:
    """A name of one's own."""
    return {"name": "memory.example.com", "certificate_arn": CERTIFICATE, **more}


JWT = {"jwt_issuer": "https://i.example", "jwt_audience": "memory"}
LONG = json.dumps({"keys": [{"n": "a" * 3000}]})
"""As a few RSA keys with their certificates are."""
PROFILE = "arn:aws:bedrock:eu-west-1:111122223333:application-inference-profile/a1b2"
REFUSED_SETTINGS: list[tuple[Mapping[str, Any], str]] = [
    ({**PRIVATE, "domain": make_domain(mutual_tls=TRUST)}, "private and domain: .*mutual TLS; set"),
    ({**PRIVATE, "domain": make_domain()}, "private and domain: .*custom domain"),
    ({"private": True}, "private needs vpc_endpoint_ids"),
    ({"proxy": True}, "proxy and min_capacity 0: .*never pause; set min_capacity to 0.5"),
    ({"mutual_tls": TRUST}, "mutual_tls: Extra inputs"),
    ({"domain": {"mutual_tls": TRUST}}, r"domain\.name: Field required"),
    ({"settings": {"llm_provider": "openai"}}, "network=endpoints has no way out for .*llm_prov"),
    ({"settings": {"llm_provider": "azure"}}, "set network to nat"),
    ({"settings": {"embedding_provider": "openai"}}, "no way out for settings.embedding_provider"),
    ({"settings": {"llm_base_url": "https://models.example"}}, "no way out for settings.llm_base"),
    ({"settings": {"key_secret": "k" * 40}}, "settings.key_secret is a secret .*put it into"),
    ({"settings": {"llm_api_key": "sk"}}, "settings.llm_api_key is a secret"),
    ({"settings": {"bucket": "mine"}}, "settings.bucket is set by the stack itself: leave it out"),
    ({"settings": {"llm_secnods": 3}}, "settings.llm_secnods is no setting of the service"),
    ({"settings": {"llm_provider": "bedrock"}}, "LLM_PROVIDER=bedrock needs STRANDLINE_LLM_MODEL"),
    (
        {"network": "nat", "settings": {"llm_provider": "azure", "llm_model": "m"}},
        "needs STRANDLINE_LLM_BASE_URL, STRANDLINE_LLM_API_VERSION as well",
    ),
    ({"settings": {"embedding_provider": "bedrock"}}, "PROVIDER=bedrock needs STRANDLINE_EMBED"),
    ({"settings": VECTORS | {"embedding_model": "m"}}, "EMBEDDING_MODEL=m is none of .*Set amazon"),
    ({"settings": VECTORS | {"embedding_dimensions": 3}}, "DIMENSIONS=3 is no .*set 256, 512"),
    ({"settings": VECTORS | {"embedding_region": "eu-west-3"}}, "leave embedding_region out"),
    (
        {"network": "nat", "settings": VECTORS | {"embedding_region": "Paris"}},
        "settings.embedding_region: .*pattern",
    ),
    ({"settings": {"embedding_dimensions": 3}}, "The local embedding model is"),
    ({"settings": {**JWT, "jwt_jwks": "https://i.example/keys"}}, "or give the keys themselves"),
    ({"settings": {**JWT, "jwt_jwks": LONG}}, "are 3[0-9]{3} bytes.*put jwt_jwks into the secret"),
    ({"settings": {"jwt_issuer": "i"}}, "settings.jwt_issuer needs .* settings.jwt_audience"),
    ({"settings": {"auth_require_all": True}}, "auth_require_all: there is no second method"),
    (
        {"settings": {"llm_provider": "bedrock", "llm_model": PROFILE}},
        "application inference profile.*set profile_models",
    ),
    ({"name": "a--b"}, "name: .*pattern"),
    ({"name": "a-"}, "name: String should match pattern"),
    ({"reserved": {"scheduler": -5}}, "reserved.scheduler: .*greater than or equal to 0"),
    ({"engine_version": "17.4"}, "engine_version: Postgres 18 is the version that is tested: set"),
    ({"throttle_rate": 40, "settings": {"tenant_requests_per_minute": 6000}}, "throttle_rate: a"),
    (
        {"settings": {"tenant_burst_seconds": 10}},
        "throttle_burst: a tenant may send 560 .* at most",
    ),
    ({"throttle_burst": 500}, "throttle_burst is 500, and .* 100 instances"),
    ({"firewall_rate": 20}, "firewall_rate is of the firewall that the stack creates: set firew"),
    ({"firewall": True, "firewall_rate": 160}, "firewall_rate: one address .* raise throttle_rate"),
    ({"firewall": "all"}, "firewall"),
    ({"settings": {"llm_seconds": 600}}, "settings.llm_seconds: .*less than or equal to 120"),
    ({"network": "existing"}, "network is existing if and only if vpc"),
    ({"cidr": "10.0.0.0/24"}, "cidr: a VPC has an IPv4 range from a /16 to a /22 here"),
    ({"cidr": "10.0.0.1/16"}, "cidr: .*has host bits set"),
    (VARIANTS["existing"] | {"cidr": "10.1.0.0/16"}, "cidr is of the VPC that the stack creates"),
    ({"min_capacity": 8}, "min_capacity is over max_capacity"),
    ({"max_connections": 3000}, "max_connections is at most 2000 where min_capacity"),
    ({"reserved": {"ingest": 900}}, "over 60% of the 822 .* at most 493 together, or raise"),
    ({"max_capacity": 1}, "over 60% of the 189"),
    (BUSY | {"settings": ASKS}, "may hold 632 connections, over 60% of the 822"),
    ({"reserved": {"query": 0}}, "reserved.query must be 1 or more"),
    ({"reserved": {"other": 1}}, "reserved.other is no function"),
    ({"account_concurrency": 9}, "account_concurrency: .*greater than or equal to 10"),
    ({"account_concurrency": 10, "reserved": {"query": 2}}, "trial without reservations: leave"),
    ({"account_concurrency": 600}, "600 instances may hold 600 connections, .* 493 at max_cap"),
    ({"account_concurrency": 200, "settings": ASKS}, "200 instances may hold 800 connections"),
    ({"max_capacity": "many", "log_days": 31}, "max_capacity: .*; log_days: "),
    ({"colour": "blue"}, "colour: Extra inputs"),
]


@pytest.mark.parametrize(
    ("settings", "words"), REFUSED_SETTINGS, ids=[words[:40] for _, words in REFUSED_SETTINGS]
)
def test_stack_settings_refuse_impossible_values_in_words(
    settings: Mapping[str, Any], words: str
) -> None:
    with pytest.raises(SettingsError, match=words) as error:
        build_valid_settings(settings)
    assert "Value error" not in str(error.value)


def test_stack_settings_count_connections_of_model_threads() -> None:
    """Each of three has its own beside that of the function; the heuristic model is asked in one.
    With a model, too, the reservations that ship fit."""
    assert build_valid_settings(BUSY).reserved == {"worker": 55}
    assert build_valid_settings({"settings": ASKS}).service_settings.llm_provider == "bedrock"
    assert {fn.name for fn in FUNCTIONS if fn.connections_per_instance == 4} == {
        *("worker", "sweeper", "builder"),
    }


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_stack_settings_keep_tenant_below_gateway_and_database(stage: str) -> None:
    """The template's own figures: a tenant's share, the gateway's limit, and what is behind it."""
    settings = load_stage_settings(context(stage=stage))
    service = settings.service_settings
    rate = service.tenant_requests_per_minute / 60
    assert 0 < rate <= settings.request_rate / 2
    assert rate * service.tenant_burst_seconds <= settings.request_burst / 2
    assert settings.request_burst <= settings.max_request_instances == 100
    recall_seconds = prices.CPU_OF_RECALL / prices.CORES_PER_UNIT
    assert (
        settings.request_rate
        <= settings.max_capacity / recall_seconds
        < settings.request_rate * 1.1
    )
    largest = service.tenant_appends_per_minute / 60 * service.tenant_burst_seconds
    assert largest >= MAX_BATCH, "a batch of the largest size fits at once"


def test_stack_settings_of_trial_share_quota() -> None:
    """Nothing is reserved, and requests are refused before they find no instance."""
    trial = load_stage_settings(context(stage="trial"))
    assert not any(map(trial.reserved_concurrency, FUNCTIONS))
    assert trial.request_burst == trial.max_request_instances == trial.account_concurrency == 10
    service = trial.service_settings
    assert 0 < service.tenant_requests_per_minute / 60 <= trial.request_burst / 2


def test_stack_settings_warn_of_alarms_that_notify_nobody() -> None:
    """`prod` has a budget as it ships, and no address yet: it can be deployed."""
    prod = load_stage_settings(context(stage="prod"))
    assert prod.alarms.usd_per_month
    assert "notify nobody: set alarms.email" in (validation.find_warning(prod) or "")
    told = prod.model_dump(exclude={"alarms"}) | {"alarms": {"email": "ops@example.com"}}
    assert validation.find_warning(build_valid_settings(told)) is None
    assert validation.find_warning(load_stage_settings(context())) is None


def test_stack_settings_firewall_stops_one_address_before_stage() -> None:
    """At the rate of a tenant, unless it is set: in `prod` as it ships, where it is on."""
    dev, prod = load_stage_settings(context()), load_stage_settings(context(stage="prod"))
    assert (dev.firewall, prod.firewall) == (False, True)
    for settings in (dev, prod):
        assert settings.firewall_requests_a_second <= settings.request_rate / 2
        assert settings.firewall_requests_a_second * 60 >= 10, "AWS WAF takes no less"
    own = build_valid_settings({"firewall": True, "firewall_rate": 50})
    assert own.firewall_requests_a_second == 50
    assert build_valid_settings({"firewall": FIREWALL}).firewall == FIREWALL


def test_stack_settings_refusal_hides_secret() -> None:
    with pytest.raises(SettingsError) as error:
        build_valid_settings({"settings": {"llm_api_key": "sk-very-secret"}})
    assert "sk-very-secret" not in str(error.value)


@pytest.mark.parametrize(
    ("low", "high", "connections"),
    [(1, 1, 189), (1, 4, 822), (1, 8, 1666), (1, 16, 3354), (1, 32, 5000), (0, 16, 2000)],
)
def test_stack_settings_connections_match_aurora_table(
    low: float, high: float, connections: int
) -> None:
    """189, 823, 1,669, 3,360 and 5,000 there: never more than it, and at most 1 % less."""
    few = dict.fromkeys(("ingest", "query", "worker", *(job.name for job in JOBS)), 9)
    settings = build_valid_settings({"min_capacity": low, "max_capacity": high, "reserved": few})
    assert settings.max_database_connections == connections


def test_stack_settings_command_line_beats_stage_and_defaults() -> None:
    dev, prod = load_stage_settings(context()), load_stage_settings(context(stage="prod"))
    assert (dev.stack_name, prod.stack_name) == ("strandline-dev", "strandline-prod")
    assert dev.can_pause
    assert prod.min_capacity > 0
    assert prod.deletion_protection
    context_values = context(
        stage="prod", name="second", readers="2", proxy="true", tags='{"a": "b"}'
    )
    settings = load_stage_settings(context_values)
    assert (settings.stack_name, settings.readers, settings.proxy) == ("second", 2, True)
    assert settings.tags == {"a": "b"}


ALL_SETTINGS: Mapping[str, object] = {
    "stage": "prod",
    "network": "existing",
    "vpc": {
        "vpc_id": "vpc-0",
        "availability_zones": ["eu-west-1a", "eu-west-1b"],
        "subnet_ids": ["subnet-0", "subnet-1"],
    },
    "vpc_endpoint_ids": ["vpce-0"],
    "min_capacity": 1.5,
    "ca_bundle": "global-bundle.pem",
    "firewall": True,
    "firewall_rate": 40,
    "throttle_rate": 100,
    "throttle_burst": 90,
    "snapshot": "arn:aws:rds:eu-west-1:111122223333:cluster-snapshot:s",
    "key": True,
    "proxy": True,
    "domain": make_domain(mutual_tls=TRUST),
    "cors_origins": ["https://app.example"],
    "settings": {"llm_seconds": 5},
    "profile_models": ["arn:aws:bedrock:eu-west-1::foundation-model/m"],
    "reserved": {"ingest": 50},
    "alarms": {"email": "ops@example.com", "usd_per_month": 40},
    "log_days": 7,
    "tags": {"team": "memory"},
    "permission_boundary": "arn:aws:iam::111122223333:policy/boundary",
    "max_connections": 1000,
    "name": "second",
    "restart": "again",
}
"""A value of every field whose default is none that one would write."""


def as_written(value: object) -> str:
    """As it comes with -c."""
    return value if isinstance(value, str) else json.dumps(value)


def test_stack_settings_all_come_from_command_line() -> None:
    """Where everything is text."""
    plain = build_valid_settings({}).model_dump()
    trial = load_stage_settings(context(account_concurrency="20"))
    assert trial.account_concurrency == 20
    names = StackSettings.model_fields.keys() - {"account_concurrency"}  # or `reserved`
    values = {n: ALL_SETTINGS.get(n, plain[n]) for n in names}
    settings = load_stage_settings(context(**{n: as_written(v) for n, v in values.items()}))
    assert settings == build_valid_settings(values)
    assert (settings.log_days, settings.key, settings.readers) == (7, True, 0)


def test_stack_settings_refuse_misspelt_option() -> None:
    with pytest.raises(SettingsError, match=r"-c nettwork: .*did you mean network\?"):
        load_stage_settings(context(nettwork="nat"))
    with pytest.raises(SettingsError, match=r"-c colour: .*configuration\.md"):
        load_stage_settings(context(colour="blue"))
    with pytest.raises(SettingsError, match="-c tags: is no JSON"):
        load_stage_settings(context(tags='{"team": }'))
    with pytest.raises(SettingsError, match="log_days: CloudWatch keeps logs for one of 1, 3, 5"):
        load_stage_settings(context(log_days="8"))


def test_stack_settings_jwt_key_may_lie_in_secret() -> None:
    assert build_valid_settings({"settings": JWT}).service_settings.jwt_enabled
    keys = build_valid_settings(
        {"settings": {**JWT, "jwt_algorithms": "ES256,EdDSA"}}
    ).service_settings
    assert (keys.jwt_algorithms, keys.jwt_secret) == (("ES256", "EdDSA"), None)


def test_stack_settings_unknown_stage_names_known_ones() -> None:
    with pytest.raises(
        SettingsError, match=r"stage tset is not in cdk.json \(there are: dev, prod, trial\)"
    ):
        load_stage_settings(context(stage="tset"))


def rows(of: type[BaseModel], within: str = "") -> list[str]:
    """The lines of docs/configuration.md for the fields of a type, and of the types within it."""
    lines: list[str] = []
    for name, field in of.model_fields.items():
        kinds = [k for k in (field.annotation, *get_args(field.annotation)) if isinstance(k, type)]
        parts = [k for k in kinds if issubclass(k, BaseModel)]
        default = "" if parts or field.is_required() else plain(field.default)
        copy = " ".join((field.description or "").split()).replace("|", "or")
        lines.append(f"| `{within}{name}` | {default} | {copy} |")
        for part in parts:
            lines += rows(part, f"{within}{name}.")
    return lines


def plain(default: object) -> str:
    """A default as cdk.json has it; nothing for what is absent or empty."""
    return "" if default in (None, "", [], {}) else f"`{json.dumps(default)}`"


def test_stack_settings_are_all_in_docs() -> None:
    """What they lack is printed whole, to be pasted."""
    text = (ROOT / "docs" / "configuration.md").read_text()
    section = text.partition("\n## Stack settings\n")[2].partition("\n## ")[0]
    table_lines = [line for line in section.splitlines() if line.startswith("| `")]
    result_rows = rows(StackSettings)
    assert [line for line in table_lines if line in result_rows] == result_rows, "\n".join(
        result_rows
    )
