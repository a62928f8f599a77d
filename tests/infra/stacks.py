"""The whole stack, made without AWS and with small stand-ins for what is built."""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strandline.function_specs import Layer
from tests.infra.kept_templates import keep

ROOT = Path(__file__).parents[2]
CONTEXT: Mapping[str, Any] = json.loads((ROOT / "cdk.json").read_text())["context"]
type Template = dict[str, Any]

MUTUAL_TLS = {
    "name": "memory.example.com",
    "certificate_arn": "arn:aws:acm:eu-west-1:111122223333:certificate/c",
    "base_path": "memory",
    "mutual_tls": {"truststore_uri": "s3://authorities/ca.pem", "truststore_version": "3sL4kqtJ"},
}
KEY = "arn:aws:kms:eu-west-1:111122223333:key/11112222-3333-4444-5555-666677778888"
VARIANTS: Mapping[str, dict[str, Any]] = {
    "as it comes": {},
    "prod as it comes": CONTEXT["stages"]["prod"],
    "nat": {
        "network": "nat",
        "cidr": "10.7.0.0/22",
        "settings": {
            "llm_provider": "openai",
            "llm_model": "m",
            "embedding_provider": "bedrock",
            "embedding_model": "eu.cohere.embed-v4:0",
            "embedding_dimensions": 1024,
            "embedding_region": "eu-west-3",
        },
        "throttle_rate": 50,
        "backup_days": 30,
    },
    "existing": {
        "network": "existing",
        "vpc": {
            "vpc_id": "vpc-0123456789abcdef0",
            "availability_zones": ["eu-west-1a", "eu-west-1b"],
            "subnet_ids": ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"],
            "security_group_ids": ["sg-0123456789abcdef0"],
        },
        "backup_days": 35,
    },
    "own key": {
        "key": True,
        "tracing": True,
        "tags": {"team": "memory"},
        "settings": {
            "embedding_provider": "bedrock",
            "embedding_model": "eu.cohere.embed-v4:0",
            "embedding_dimensions": 1024,
        },
    },
    "a key that is there": {
        "key": KEY,
        "alarms": {"email": "ops@example.com"},
        "min_capacity": 2,
    },
    "trial": CONTEXT["stages"]["trial"] | {"deletion_protection": True},
    "private": {"private": True, "vpc_endpoint_ids": ["vpce-0123456789abcdef0"]},
    "mutual TLS": {
        "domain": MUTUAL_TLS,
        "cors_origins": ["https://app.example.com"],
        "firewall": True,
    },
    "proxy": {"proxy": True, "min_capacity": 1, "readers": 1, "max_connections": 1000},
    "restored": {"snapshot": "arn:aws:rds:eu-west-1:111122223333:cluster-snapshot:last"},
    "bedrock": {
        "settings": {"llm_provider": "bedrock", "llm_model": "eu.amazon.nova-lite-v1:0"},
        "permission_boundary": "arn:aws:iam::111122223333:policy/boundary",
    },
}
"""Settings that a deployment may have, between them every field that changes what is made."""
SECOND: Mapping[str, Any] = {**VARIANTS["proxy"], "name": "second", "log_days": 90}
"""A stack beside the one with a proxy, in the same account."""
OWN_PROFILE = "arn:aws:bedrock:eu-west-1:111122223333:application-inference-profile/a1b2"
OWN_MODELS = ("arn:aws:bedrock:eu-west-1::foundation-model/m",)
FIREWALL = "arn:aws:wafv2:eu-west-1:111122223333:regional/webacl/w/1"
SEVERAL: Mapping[str, Any] = {
    "alarms": {"email": "ops@example.com"},
    "backup_days": 1,
    "max_capacity": 8,
    "min_capacity": 8,
    "profile_models": OWN_MODELS,
    "restart": "again",
    "storage_type": "aurora-iopt1",
    "settings": {
        "llm_provider": "bedrock",
        "llm_model": OWN_PROFILE,
        "llm_seconds": 5.5,
        "embedding_threads": 2,
    },
    "firewall": FIREWALL,
}
"""Settings that do not touch one another, in one stack: to make each alone takes seconds."""
LAYER_BYTES = 62 * 2**20
"""Of each layer and asset: four of them are just within Lambda's limit."""


class StandIns:
    """A file in place of each layer and function."""

    handler = "handler.lambda_handler"
    certificates = "/opt/python/strandline_certs/rds.pem"
    certificates_layer: Path | None = None

    def __init__(self, directory: Path, size: int = LAYER_BYTES) -> None:
        self._directory, self._size = directory, size

    def layer_directory(self, name: Layer) -> Path:
        """A directory of its own."""
        return self.function_directory(name)

    def function_directory(self, name: str) -> Path:
        """Likewise."""
        directory = self._directory / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "handler.py").write_text(f"# {name}\n")
        return directory

    def unzipped_size(self, directory: Path) -> int:
        """As large as the test says."""
        del directory
        return self._size


@functools.cache
def _template(props: str) -> str:
    def make() -> str:
        from tests.infra import synthesis

        return synthesis.synthesize(json.loads(props))

    return keep("stack", props, make)


def template(**options: Any) -> Template:
    """The template of these settings: a copy each time."""
    return json.loads(_template(json.dumps(options, sort_keys=True)))


def findings(**options: Any) -> list[str]:
    """What cdk-nag and the CDK's own rules find wrong with it, and nothing explains."""
    return synthesize("findings", options)


def synthesize(what: str, *arguments: object) -> Any:
    """What a function of synthesis.py gives for these arguments, as JSON has it; kept."""

    def make() -> str:
        from tests.infra import synthesis

        return json.dumps(getattr(synthesis, what)(*arguments))

    return json.loads(keep(what, json.dumps(arguments, sort_keys=True), make))


def properties(stack: Template, kind: str) -> dict[str, dict[str, Any]]:
    """The properties of all resources of a kind (without AWS::), by logical id."""
    return {
        name: resource.get("Properties", {})
        for name, resource in stack["Resources"].items()
        if resource["Type"] == f"AWS::{kind}"
    }
