"""Nothing secret of a key is kept or told again: not in a table, an answer, or the log."""

import base64
import io
from collections.abc import Iterator, Sequence
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql

from strandline.observability import logger
from tests.support import KEY_SECRET, Gateway, ScratchDatabase, user_message

TENANTS = "/api/v1/admin/tenants"
KEYS = f"{TENANTS}/acme/keys"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What the functions print."""
    stream = io.StringIO()
    handler: Any = logger.registered_handler
    before = handler.setStream(stream)
    yield stream
    handler.setStream(before)


def spellings(token: str) -> list[str]:
    """A token, its secret and its MAC, and the ways in which they might be written down: any of
    them, or most of one, is enough to find."""
    word = token.removeprefix("strandline_")
    raw = base64.urlsafe_b64decode(word + "=" * (-len(word) % 4))
    secret, mac = raw[16:48], raw[48:]
    secrets = [word[24:], KEY_SECRET]
    for part in (secret, mac):
        secrets += [part.hex(), part.hex().upper(), repr(part)[2:-1]]
        for encoded in (base64.b64encode(part), base64.urlsafe_b64encode(part)):
            secrets.append(encoded.decode().rstrip("=")[:-1])
    return secrets


def find_tokens(tokens: Sequence[str], text: str) -> list[str]:
    """What of the tokens stands in a text."""
    return [secret for token in tokens for secret in spellings(token) if secret in text]


def dump(base: ScratchDatabase) -> str:
    """Every row of every table of ours, as text: as a dump would hold it."""
    tables = base.rows(
        "select relname::text from pg_class"
        " where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'm')"
    )
    with psycopg.connect(base.admin_url, autocommit=True) as administrator:
        return "\n".join(
            row[0]
            for (name,) in tables
            for row in administrator.execute(
                sql.SQL("select t::text from {} t").format(sql.Identifier(name))
            )
        )


def lead_a_life(gateway: Gateway) -> tuple[list[str], str]:
    """Keys made, used, rotated, listed, misused and revoked: their tokens, and every answer but
    those that show a token for the once."""
    operator = gateway.key("ops", rights=["operator"])
    gateway.call("POST", TENANTS, {"tenant_id": "acme"}, key=operator)
    bodies = [
        gateway.call("POST", KEYS, {"user": user, "label": "phone"}, key=operator).body
        for user in (None, "user:alice")
    ]
    reply_bodies = [
        gateway.call("POST", f"{KEYS}/{key['key_id']}/rotate", {}, key=operator).body
        for key in bodies
    ]
    tokens = [
        operator,
        *(k["token"] for k in bodies),
        *(pair["key"]["token"] for pair in reply_bodies),
    ]
    others = [str(pair["old"]) for pair in reply_bodies]
    for token in tokens:
        for reply in (
            gateway.call("POST", "/api/v1/events", user_message("hello", "user:alice"), key=token),
            gateway.call("GET", KEYS, key=token),
            gateway.call("GET", f"{KEYS}/{token}", key=operator),
            gateway.call("GET", f"{TENANTS}/{token}", key=operator),
            gateway.call("POST", TENANTS, {"tenant_id": token}, key=operator),
            gateway.call("POST", KEYS, {"user": token}, key=operator),
            gateway.call("POST", KEYS, {"rights": [token]}, key=operator),
            gateway.call("GET", KEYS, key=operator, query={"cursor": token}),
            gateway.call("GET", TENANTS, key=operator, query={"cursor": token}),
            gateway.call("GET", KEYS, key=token[:-4] + "AAAA"),
            gateway.call("GET", KEYS, headers={"Authorization": f"Basic {token}"}),
        ):
            others.append(f"{reply.text} {dict(reply.headers)}")
    for path in (KEYS, f"{TENANTS}/acme/audit", f"{TENANTS}/ops/audit", TENANTS):
        others.append(gateway.call("GET", path, key=operator).text)
    for key in bodies:
        for _ in range(2):
            others.append(gateway.call("DELETE", f"{KEYS}/{key['key_id']}", key=operator).text)
    return tokens, "\n".join(others)


def test_key_secrets_are_in_no_dump_answer_or_log(
    gateway: Gateway, scratch_db: ScratchDatabase, lines: io.StringIO
) -> None:
    tokens, answers = lead_a_life(gateway)
    contents, log_text = dump(scratch_db), lines.getvalue()
    assert len(tokens) == 5
    for text in (contents, answers):  # they are about these keys
        assert base64.urlsafe_b64decode(tokens[1][11:] + "==")[:16].hex() in text
    assert log_text.count('"message":"request"') > 50
    assert find_tokens(tokens, contents) == []
    assert find_tokens(tokens, answers) == []
    assert find_tokens(tokens, log_text) == []


@pytest.mark.parametrize(
    "stored_value",
    [
        "%(token)s",
        "substr(%(token)s, 12)",
        "encode(%(secret)s, 'hex')",
        "%(secret)s::text",
        "'mac ' || encode(%(mac)s, 'base64')",
    ],
)
def test_key_secrets_check_finds_planted_column(
    gateway: Gateway, scratch_db: ScratchDatabase, stored_value: LiteralString
) -> None:
    """Teeth."""
    tokens = [gateway.key()]
    assert find_tokens(tokens, dump(scratch_db)) == []
    raw = base64.urlsafe_b64decode(tokens[0].removeprefix("strandline_") + "==")
    parts = {"token": tokens[0], "secret": raw[16:48], "mac": raw[48:]}
    with psycopg.connect(scratch_db.admin_url, autocommit=True) as administrator:
        administrator.execute("alter table api_keys add column note text")
        value = sql.SQL(stored_value)
        administrator.execute(sql.SQL("update api_keys set note = {}").format(value), parts)
    assert find_tokens(tokens, dump(scratch_db)) != []


def test_key_secrets_check_finds_planted_log_line_or_answer(
    gateway: Gateway, lines: io.StringIO
) -> None:
    """Teeth."""
    operator = gateway.key("ops", rights=["operator"])
    gateway.call("POST", TENANTS, {"tenant_id": "acme"}, key=operator)
    reply = gateway.call("POST", KEYS, {}, key=operator)
    token = reply.body["token"]
    assert find_tokens([token], reply.text) != []
    assert find_tokens([token], lines.getvalue()) == []
    logger.info("made", extra={"token": token})
    assert find_tokens([token], lines.getvalue()) != []
