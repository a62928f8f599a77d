"""What a deployment is told: stages, what is refused, and in which words."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from infra.settings import Refused, StackSettings, made, read

ROOT = Path(__file__).parents[2]
CERTIFICATE = "arn:aws:acm:eu-west-1:111122223333:certificate/c"
TRUST = {"truststore_uri": "s3://authorities/ca.pem", "truststore_version": "1"}
PRIVATE = {"private": True, "vpc_endpoint_ids": ["vpce-0123456789abcdef0"]}


def named(**more: object) -> dict[str, object]:
    """A name of one's own."""
    return {"name": "memory.example.com", "certificate_arn": CERTIFICATE, **more}


REFUSED: list[tuple[Mapping[str, Any], str]] = [
    ({**PRIVATE, "domain": named(mutual_tls=TRUST)}, "private and domain: .*mutual TLS; set"),
    ({**PRIVATE, "domain": named()}, "private and domain: .*custom domain"),
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
    ({"settings": {"llm_seconds": 600}}, "settings.llm_seconds: .*less than or equal to 120"),
    ({"network": "existing"}, "network is existing if and only if vpc"),
    ({"min_capacity": 8}, "min_capacity is over max_capacity"),
    ({"max_connections": 3000}, "max_connections is at most 2000 where min_capacity"),
    ({"reserved": {"ingest": 900}}, "over 60% of the 822 .* at most 493 together, or raise"),
    ({"max_capacity": 1}, "over 60% of the 189"),
    ({"reserved": {"query": 0}}, "reserved.query must be 1 or more"),
    ({"reserved": {"other": 1}}, "reserved.other is no function"),
    ({"max_capacity": "many", "log_days": 31}, "max_capacity: .*; log_days: "),
    ({"colour": "blue"}, "colour: Extra inputs"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED, ids=[words[:40] for _, words in REFUSED])
def test_what_cannot_be_made_is_refused_in_words(given: Mapping[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words) as refused:
        made(given)
    assert "Value error" not in str(refused.value)


def test_no_refusal_repeats_a_secret() -> None:
    with pytest.raises(Refused) as refused:
        made({"settings": {"llm_api_key": "sk-very-secret"}})
    assert "sk-very-secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("low", "high", "connections"),
    [(1, 1, 189), (1, 4, 822), (1, 8, 1666), (1, 16, 3354), (1, 32, 5000), (0, 16, 2000)],
)
def test_connections_are_those_of_aurora_s_table(low: float, high: float, connections: int) -> None:
    """189, 823, 1,669, 3,360 and 5,000 there: never more than it, and at most 1 % less."""
    few = dict.fromkeys(("ingest", "query"), 10)
    given = made({"min_capacity": low, "max_capacity": high, "reserved": few})
    assert given.database_connections == connections


def context(**given: object) -> Any:
    """What the CDK knows: cdk.json's context and the command line's."""
    return {**json.loads((ROOT / "cdk.json").read_text())["context"], **given}.get


def test_a_stage_goes_over_the_defaults_and_the_command_line_over_the_stage() -> None:
    dev, prod = read(context()), read(context(stage="prod"))
    assert (dev.stack_name, prod.stack_name) == ("strandline-dev", "strandline-prod")
    assert dev.pauses
    assert prod.min_capacity > 0
    assert prod.deletion_protection
    asked = context(stage="prod", name="second", readers="2", proxy="true", tags='{"a": "b"}')
    told = read(asked)
    assert (told.stack_name, told.readers, told.proxy) == ("second", 2, True)
    assert told.tags == {"a": "b"}


def test_an_unknown_stage_names_those_there_are() -> None:
    with pytest.raises(Refused, match=r"stage tset is not in cdk.json \(there are: dev, prod\)"):
        read(context(stage="tset"))


def rows(of: type[BaseModel], within: str = "") -> list[str]:
    """The README's lines for the fields of a type, and of the types within it."""
    lines: list[str] = []
    for name, field in of.model_fields.items():
        kinds = [k for k in (field.annotation, *get_args(field.annotation)) if isinstance(k, type)]
        parts = [k for k in kinds if issubclass(k, BaseModel)]
        default = "" if parts or field.is_required() else plain(field.default)
        said = " ".join((field.description or "").split()).replace("|", "or")
        lines.append(f"| `{within}{name}` | {default} | {said} |")
        for part in parts:
            lines += rows(part, f"{within}{name}.")
    return lines


def plain(default: object) -> str:
    """A default as cdk.json has it; nothing for what is absent or empty."""
    return "" if default in (None, "", [], {}) else f"`{json.dumps(default)}`"


def test_the_readme_has_every_setting() -> None:
    """What it lacks is printed whole, to be pasted."""
    section = (ROOT / "README.md").read_text().partition("\n## Deploy\n")[2].partition("\n## ")[0]
    told = [line for line in section.splitlines() if line.startswith("| `")]
    wanted = rows(StackSettings)
    assert [line for line in told if line in wanted] == wanted, "\n".join(wanted)
