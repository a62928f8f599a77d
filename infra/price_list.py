"""The unit prices that infra/prices.py computes with.

List prices of us-east-1, without free tiers, discounts and taxes. `seen` names a page that showed
the figure; `remembered` is a figure that no page at hand showed, to be looked up before it is
relied on. Only the price list of AWS on the day is authoritative.
"""

from collections.abc import Mapping
from dataclasses import dataclass

AS_OF = "November 2026"
"""Month in which the pages were read."""


@dataclass(frozen=True)
class UnitPrice:
    """USD for one unit."""

    usd: float
    unit: str
    source: str


_GETMAXIM = "seen: getmaxim.ai, 2026-11"
BEDROCK_EMBEDDINGS: Mapping[str, UnitPrice] = {
    "amazon.titan-embed-text-v2:0": UnitPrice(0.02e-6, "token", "remembered"),
    "cohere.embed-english-v3": UnitPrice(0.10e-6, "token", _GETMAXIM),
    "cohere.embed-multilingual-v3": UnitPrice(0.10e-6, "token", _GETMAXIM),
    "cohere.embed-v4:0": UnitPrice(0.12e-6, "token", _GETMAXIM),
}
"""By the model's own name, of every model that `embedding_provider=bedrock` takes."""
BEDROCK_CHAT: Mapping[str, UnitPrice] = {
    "amazon.nova-lite-v1:0 in": UnitPrice(0.06e-6, "token", "seen: tokenmix.ai, 2026-04"),
    "amazon.nova-lite-v1:0 out": UnitPrice(0.24e-6, "token", "remembered"),
}
"""A small language model, as one that a stack may name in `llm_model`."""

PRICES: Mapping[str, UnitPrice] = {
    "acu": UnitPrice(0.12, "Aurora capacity unit and hour", "seen: factualminds.com, 2026-06"),
    "storage": UnitPrice(0.10, "GB of Aurora storage and month", "remembered"),
    "acu_iopt": UnitPrice(0.156, "capacity unit and hour, I/O-Optimized", "remembered"),
    "storage_iopt": UnitPrice(
        0.225, "GB of I/O-Optimized storage and month", "seen: factualminds.com, 2026-06"
    ),
    "io": UnitPrice(0.20e-6, "I/O of Aurora Standard", "seen: jusdb.com"),
    "endpoint": UnitPrice(0.01, "interface endpoint, zone and hour", "remembered"),
    "endpoint_gb": UnitPrice(0.01, "GB through an interface endpoint", "remembered"),
    "nat_gb": UnitPrice(0.045, "GB through a NAT gateway", "remembered"),
    "backup": UnitPrice(0.021, "GB of Aurora backups and month", "remembered"),
    "nat": UnitPrice(0.045, "NAT gateway and hour", "remembered"),
    "address": UnitPrice(0.005, "public IPv4 address and hour", "remembered"),
    "request": UnitPrice(3.5e-6, "call of a REST API", "seen: logicata.com and others"),
    "invocation": UnitPrice(0.20e-6, "invocation of a Lambda function", "seen: git.mcrn.ar, 2026"),
    "gb_second": UnitPrice(13.3334e-6, "GB-second of Lambda, arm64", "seen: git.mcrn.ar, 2026"),
    "message": UnitPrice(0.40e-6, "call of SQS", "remembered"),
    "transition": UnitPrice(25e-6, "state transition of Step Functions", "remembered"),
    "key": UnitPrice(1.0, "KMS key and month", "remembered"),
    "secret": UnitPrice(0.40, "secret and month", "remembered"),
    "alarm": UnitPrice(0.10, "metric of an alarm and month", "remembered"),
    "metric": UnitPrice(0.30, "custom metric and month", "seen: signoz.io, 2026-02"),
    "dashboard": UnitPrice(3.0, "dashboard and month", "seen: factualminds.com, 2026-06"),
    "log": UnitPrice(0.50, "GB of log taken in", "seen: factualminds.com, 2026-06"),
    "out": UnitPrice(0.09, "GB out to the internet", "seen: appropri8, 2025-12"),
    "web_acl": UnitPrice(5.0, "web ACL of AWS WAF and month", "seen: c3x.dev, 2026"),
    "web_rule": UnitPrice(1.0, "rule of a web ACL and month", "seen: c3x.dev, 2026"),
    "web_request": UnitPrice(0.60e-6, "request that a web ACL sees", "seen: c3x.dev, 2026"),
    **BEDROCK_EMBEDDINGS,
    **BEDROCK_CHAT,
}
AGENTCORE: Mapping[str, UnitPrice] = {
    "event": UnitPrice(0.25 / 1000, "new event", "quoted by third parties"),
    "record": UnitPrice(
        0.75 / 1000, "built-in long-term record and month", "quoted by third parties"
    ),
    "retrieval": UnitPrice(0.50 / 1000, "retrieval", "quoted by third parties"),
}
"""Amazon Bedrock AgentCore Memory, as third parties quote its page; models are included."""
