"""Ways in that a test turns on, and requests by them."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from strandline.admin import certificates
from strandline.db.database import Caller
from strandline.embeddings.embedder import Embedder
from strandline.resources import Resources
from strandline.tenants.store_audit import AuditContext
from tests.support import KEY_SECRET, Gateway, Reply, user_message, wire_handlers
from tests.tokens import AUDIENCE, ISSUER, SECRET

EVENTS, HEALTH = "/api/v1/events", "/api/v1/health"
KEYS, BY_CERTIFICATE = {"KEY_SECRET": KEY_SECRET}, {"CLIENT_CERTIFICATES": "true"}
JWT = {"JWT_SECRET": SECRET, "JWT_ISSUER": ISSUER, "JWT_AUDIENCE": AUDIENCE}
OFF = dict.fromkeys(("KEY_SECRET", "CLIENT_CERTIFICATES", "AUTH_REQUIRE_ALL", *JWT, "JWT_JWKS"), "")
OFF["CURSOR_SECRET"] = KEY_SECRET  # which no other setting then stands for
ALICE = "CN=alice,O=Acme"

type TurnOn = Callable[..., Gateway]


@pytest.fixture
def on(gateway: Gateway, monkeypatch: pytest.MonkeyPatch, embedder: Embedder) -> Iterator[TurnOn]:
    """Start every function again with these ways in, and no others."""
    started: list[Resources] = []

    def turn_on(*ways: Mapping[str, str], **more: str) -> Gateway:
        chain_id = dict(itertools.chain(OFF.items(), *(way.items() for way in ways), more.items()))
        fields = {f"STRANDLINE_{name}": value for name, value in chain_id.items()}
        started.extend(wire_handlers(fields, monkeypatch, embedder))
        return gateway

    yield turn_on
    turn_on(KEYS)  # to close what is left needs settings
    for service in started:
        service.database.close()


def enter(gateway: Gateway, subject: str = ALICE, tenant: str = "acme", **more: Any) -> Any:
    """Let a subject stand for a tenant."""
    access = gateway.database.connect_as(Caller(tenant, ()))
    return certificates.add_certificate(access, AuditContext("a test"), subject=subject, **more)


def append(gateway: Gateway, **more: Any) -> Reply:
    return gateway.call("POST", EVENTS, user_message("x"), **more)
