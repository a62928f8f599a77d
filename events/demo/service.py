"""The running service that the demo talks to, and a key of a tenant of its own."""

import contextlib
import json
import os
import ssl
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from strandline import Strandline, operator_actions
from strandline.client.errors import ConnectionFailedError
from strandline.client.retries import Retry
from strandline.errors import Misconfigured

_NO_SERVICE = (
    "no service runs on this data: start it by `make run` in another terminal, and repeat this once"
    " it has printed its address"
)
_KEY_DAYS = 1


class DemoServiceAndTenant(NamedTuple):
    """The service, and the tenant that this run fills."""

    url: str
    tenant: str
    key: str
    """It reads, writes and erases."""
    trust: str
    """curl's option to trust the service's certificate, with a space before it; empty without
    one."""


@contextlib.contextmanager
def connect_with_new_tenant() -> Generator[tuple[Strandline, DemoServiceAndTenant]]:
    """A client of the service that `make run` started last. Raises Misconfigured if it does not
    run."""
    file = Path(os.environ.get("STRANDLINE_DATA_DIR") or ".strandline") / "local.json"
    if not file.exists():
        raise Misconfigured(_NO_SERVICE)
    local: dict[str, Any] = json.loads(file.read_text())
    certificates: dict[str, str] = local["tls"] or {}
    # With certificates of the operator's own, their authority is one that this machine knows.
    authority = certificates["authority"] if "client" in certificates else None
    context = ssl.create_default_context(cafile=authority)
    with httpx2.Client(verify=context) as http:
        try:
            Strandline(local["url"], http=http, retry=Retry(seconds=0)).ping()
        except ConnectionFailedError:
            raise Misconfigured(_NO_SERVICE) from None
        tenant = f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}"
        trust = f" --cacert {authority}" if authority else ""
        key = operator_actions.create_key(
            tenant,
            rights=("read", "write", "erase"),
            days=_KEY_DAYS,
            label="made by the demo",
        )
        place = DemoServiceAndTenant(local["url"], tenant, key, trust)
        yield Strandline(place.url, place.key, http=http), place
