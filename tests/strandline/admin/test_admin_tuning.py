"""A tenant's thresholds, as operators change and read them, and what follows from them."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from strandline.config import ServiceSettings, get_settings
from strandline.db.database import Caller
from strandline.errors import Misconfigured
from strandline.tenants import store_tuning
from strandline.tuning import DEFAULTS, Tuning
from tests.support import KEY_SECRET, Gateway, Reply, ScratchDatabase

TENANTS = "/api/v1/admin/tenants"
ACME = f"{TENANTS}/acme"
NONE = dict.fromkeys(Tuning.model_fields)


@pytest.fixture
def operator(gateway: Gateway) -> str:
    """An operator's key; acme is there."""
    gateway.key("acme", rights=["read"])
    return gateway.key("ops", rights=["operator"])


def change(gateway: Gateway, operator: str, tuning: object) -> Reply:
    """PATCH of acme's thresholds."""
    return gateway.call("PATCH", ACME, {"tuning": tuning}, key=operator)


def holds(gateway: Gateway) -> Tuning:
    """What holds for acme."""
    access = gateway.database.connect_as(Caller.background("acme"))
    return store_tuning.read_tuning(access, get_settings().tuning)


def test_tuning_sets_thresholds_one_by_one_and_null_resets(gateway: Gateway, operator: str) -> None:
    assert gateway.call("GET", ACME, key=operator).body["tuning"] == NONE
    own: dict[str, object] = {}
    for target in (
        {"heat_hours": 48, "quality": "strict"},
        {"window_events": 20, "similarity_low": -0.1},
        {"heat_hours": None, "window_events": 30},
        {},
    ):
        own |= target
        reply = change(gateway, operator, target)
        assert (reply.status, reply.body["tuning"]) == (200, NONE | own)
        assert gateway.call("GET", ACME, key=operator).body["tuning"] == NONE | own
        assert holds(gateway) == DEFAULTS.with_overrides(own)
    response = gateway.call("PATCH", ACME, {"appends_per_minute": 9}, key=operator)
    assert response.body["tuning"] == NONE | own
    assert change(gateway, operator, None).body["tuning"] == NONE
    assert holds(gateway) == DEFAULTS


def test_tuning_is_set_at_tenant_creation(gateway: Gateway, operator: str) -> None:
    body = {"tenant_id": "initech", "tuning": {"archive_days": 30}}
    reply = gateway.call("POST", TENANTS, body, key=operator)
    assert (reply.status, reply.body["tuning"]) == (201, NONE | {"archive_days": 30})


def test_tuning_audit_row_shows_before_and_after(gateway: Gateway, operator: str) -> None:
    change(gateway, operator, {"heat_hours": 48, "promote": 0.9})
    change(gateway, operator, {"heat_hours": None, "promote": 0.9, "quality": "permissive"})
    entries = gateway.call("GET", f"{ACME}/audit", key=operator).body["entries"]
    details = [e["details"] for e in entries if e["route"].startswith("PATCH")]
    assert details == [
        {
            "tuning.heat_hours": {"from": 48, "to": None},
            "tuning.quality": {"from": None, "to": "permissive"},
        },
        {
            "tuning.heat_hours": {"from": None, "to": 48},
            "tuning.promote": {"from": None, "to": 0.9},
        },
    ]


@pytest.mark.parametrize(
    ("tuning", "field"),
    [
        ({"heat_hours": 0}, "tuning.heat_hours"),
        ({"heat_hours": "24"}, "tuning.heat_hours"),
        ({"heat_growth": 0.9}, "tuning.heat_growth"),
        ({"promote": True}, "tuning.promote"),
        ({"hot": 0.8}, "tuning.hot"),
        ({"hot": None}, "tuning.hot"),
        ({"freezing": 0}, "tuning.freezing"),
        ({"window_events": 2.5}, "tuning.window_events"),
        ({"quality": "lax"}, "tuning.quality"),
        ({"heat_alpha": 0.2}, "tuning.heat_alpha"),
        ({"similarity_high": 1.1}, "tuning.similarity_high"),
        ([], "tuning"),
        ("x", "tuning"),
    ],
    ids=str,
)
def test_tuning_refuses_invalid_threshold_by_name(
    gateway: Gateway, operator: str, tuning: object, field: str
) -> None:
    for reply in (
        change(gateway, operator, tuning),
        gateway.call("POST", TENANTS, {"tenant_id": "new", "tuning": tuning}, key=operator),
    ):
        assert (reply.status, reply.error["details"]["field"]) == (422, field)
    assert holds(gateway) == DEFAULTS
    assert gateway.call("GET", f"{TENANTS}/new", key=operator).status == 404


@pytest.mark.parametrize(
    ("own", "settings", "field", "other"),
    [
        ({}, {"similarity_low": 0.6, "similarity_high": 0.5}, "similarity_low", "similarity_high"),
        ({"similarity_high": 0.4}, {"similarity_low": 0.5}, "similarity_low", "similarity_high"),
        ({}, {"freezing": 0.31}, "freezing", "promote"),
        ({"freezing": 0.25}, {"promote": 0.2}, "promote", "freezing"),
        ({"promote": 0.9, "freezing": 0.5}, {"promote": 0.4}, "promote", "freezing"),
        ({"promote": 0.75, "freezing": 0.7}, {"promote": None}, "promote", "freezing"),
        ({}, {"heat_importance": 0, "heat_density": 0.05}, "heat_importance", "freezing"),
    ],
    ids=str,
)
def test_tuning_refuses_conflicting_thresholds_by_both_names(
    gateway: Gateway,
    operator: str,
    own: dict[str, object],
    settings: dict[str, object],
    field: str,
    other: str,
) -> None:
    """What the tenant does not set is the deployment's: it counts too."""
    assert change(gateway, operator, own).status == 200
    reply = change(gateway, operator, settings)
    assert (reply.status, reply.error["details"]["field"]) == (422, f"tuning.{field}")
    assert {field, other} <= set(reply.error["details"]["thresholds"])
    assert all(name in reply.error["message"] for name in (field, other))
    assert holds(gateway) == DEFAULTS.with_overrides(own)
    # Equal is no contradiction, and what was wrong before hinders nothing else.
    assert change(gateway, operator, {"promote": 0.5, "freezing": 0.5}).status == 200
    access = gateway.database.connect_as(Caller.background("acme"))
    with access.transaction():
        store_tuning.set_tuning_overrides(access, {"promote": 0.05})
    assert change(gateway, operator, {"quality": "strict"}).status == 200


def test_tuning_survives_concurrent_changes(gateway: Gateway, operator: str) -> None:
    def one(settings: dict[str, Any]) -> None:
        assert change(gateway, operator, settings).status == 200

    expectations = [{"heat_hours": 48}, {"promote": 0.4}, {"freezing": 0.2}]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(one, expectations))
    assert holds(gateway) == DEFAULTS.with_overrides(
        expectations[0] | expectations[1] | expectations[2]
    )


def test_tuning_of_tenant_overrides_deployment(
    gateway: Gateway, operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_TUNING", json.dumps({"heat_hours": 5.0, "promote": 0.2}))
    get_settings.cache_clear()
    change(gateway, operator, {"heat_hours": 6.0})
    assert holds(gateway) == DEFAULTS.with_overrides({"heat_hours": 6.0, "promote": 0.2})
    change(gateway, operator, {"heat_hours": None})
    assert holds(gateway) == DEFAULTS.with_overrides({"heat_hours": 5.0, "promote": 0.2})


def test_tuning_ignores_retired_threshold(gateway: Gateway, operator: str) -> None:
    """`hot` was a threshold until nothing went by it."""
    access = gateway.database.connect_as(Caller.background("acme"))
    with access.transaction():
        store_tuning.set_tuning_overrides(access, {"hot": 0.9, "promote": 0.4})
    assert holds(gateway) == DEFAULTS.with_overrides({"promote": 0.4})
    reply = gateway.call("GET", ACME, key=operator)
    assert (reply.status, reply.body["tuning"]) == (200, NONE | {"promote": 0.4})
    assert change(gateway, operator, {"quality": "strict"}).status == 200
    assert store_tuning.read_tuning_overrides(access) == {"promote": 0.4, "quality": "strict"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{"promote": 2}', "STRANDLINE_TUNING.promote"),
        ('{"hot": 0.8}', "STRANDLINE_TUNING.hot"),
        ('{"promotes": 0.2}', "STRANDLINE_TUNING.promotes"),
        ("{", "STRANDLINE_TUNING: Invalid JSON"),
        ("[1]", "STRANDLINE_TUNING: "),
        ('{"freezing": 0.5}', "STRANDLINE_TUNING: .*freezing .0.5. must be at most promote"),
    ],
)
def test_tuning_error_of_deployment_prevents_start(text: str, names: str) -> None:
    environment = {"DATABASE_URL": "x", "BUCKET": "x", "KEY_SECRET": KEY_SECRET, "TUNING": text}
    with pytest.raises(Misconfigured, match=names):
        ServiceSettings.from_env(
            {f"STRANDLINE_{name}": value for name, value in environment.items()}
        )


def test_tuning_is_changed_by_operator_only(
    gateway: Gateway, operator: str, scratch_db: ScratchDatabase
) -> None:
    for rights in (["read", "write"], ["admin"]):
        key = gateway.key("acme", rights=rights)
        assert change(gateway, key, {"promote": 0.5}).status == 403
    assert scratch_db.rows("select tuning from tenants where tenant_id = 'acme'") == [({},)]
