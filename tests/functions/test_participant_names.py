"""Names of participants as people write them: an e-mail address in an address, and another case."""

import pytest

from tests.support import Gateway, Tell

PLUS, LOST = "user:ann+work@example.com", "user:ann work@example.com"
ANN, LOWER = "user:Ann@example.com", "user:ann@example.com"


def test_participant_name_with_lost_plus_is_refused(gateway: Gateway, tell: Tell) -> None:
    key = gateway.key()
    tell(key, "Ann rows.", PLUS)
    reply = gateway.call("GET", "/api/v1/scopes", key=key, query={"participants": LOST})
    assert (reply.status, reply.error["details"]["field"]) == (422, "participants")
    assert "%2B" in reply.error["message"]
    reply = gateway.call("GET", "/api/v1/scopes", key=key, query={"participants": PLUS})
    assert len(reply.body["scopes"]) == 1
    named = {"participants": "user:Ann at the dock"}
    assert gateway.call("GET", "/api/v1/scopes", key=key, query=named).status == 200


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"participants": "user:\udcff"}, "participants[0]"),
        ({"participants": ANN, "cursor": "\udcc3x"}, "cursor"),
        ({"participants": ANN, "\udcff": "x"}, ".(name)"),
    ],
)
def test_participant_name_and_other_parameters_must_be_utf8(
    gateway: Gateway, query: dict[str, str], field: str
) -> None:
    """A byte that is not UTF-8 comes as half of a character."""
    reply = gateway.call("GET", "/api/v1/scopes", key=gateway.key(), query=query)
    assert (reply.status, reply.error["details"]["field"]) == (422, field)
    assert "a byte that is not UTF-8" in reply.error["message"]


@pytest.mark.parametrize("path", ["recall", "context"])
def test_participant_name_unknown_is_told_in_empty_answer(
    gateway: Gateway, tell: Tell, path: str
) -> None:
    key = gateway.key()
    tell(key, "Ann rows on the lake.", ANN)

    def limits(names: list[str], as_user: str | None = None) -> list[str]:
        reader = gateway.key("acme", as_user) if as_user else key
        body = {"query": "zinc smelters", "participants": names}
        codes = gateway.call("POST", f"/api/v1/{path}", body, key=reader).body["degraded"]
        return [code for code in codes if code != "no_query_vector"]

    assert "no_scope_in_view" in limits([LOWER])
    assert "no_scope_in_view" not in limits([ANN])
    tell(key, "Ann and Bo row.", ANN, "user:bo")
    assert "no_scope_in_view" not in limits([ANN, "user:bo"])
    # To somebody who never met Ann, she and nobody look the same.
    strangers = [limits([name], "user:eve") for name in (ANN, LOWER, "user:nobody")]
    assert strangers == [strangers[0]] * 3
    assert "no_scope_in_view" in strangers[0]
