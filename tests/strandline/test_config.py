"""Settings from the environment: what is missing is named, and no secret is made up."""

import re
from pathlib import Path

import pytest

from strandline.config import ServiceSettings, find_unknown_settings, get_settings
from strandline.db.database import Database
from strandline.errors import Misconfigured
from tests.support import KEY_SECRET, ScratchDatabase

GOOD = {
    "STRANDLINE_DATABASE_URL": "postgresql://app@localhost/strandline",
    "STRANDLINE_BUCKET": "bucket",
    "STRANDLINE_KEY_SECRET": KEY_SECRET,
}


def refusal(env: dict[str, str]) -> Misconfigured:
    with pytest.raises(Misconfigured) as error:
        ServiceSettings.from_env(env)
    return error.value


def test_config_accepts_minimum_settings() -> None:
    loaded_settings = ServiceSettings.from_env(GOOD)
    assert (
        loaded_settings.bucket,
        loaded_settings.work_queue_url,
        loaded_settings.embedding_provider,
    ) == (
        "bucket",
        "",
        "local",
    )


def test_config_names_all_missing_variables() -> None:
    message = refusal({}).message
    assert all(name in message for name in GOOD)
    assert "STRANDLINE_WORK_QUEUE_URL" not in message


@pytest.mark.parametrize("missing", sorted(GOOD))
@pytest.mark.parametrize("rest", ["absent", "empty"])
def test_config_names_only_missing_variable(missing: str, rest: str) -> None:
    env = {name: value for name, value in GOOD.items() if name != missing}
    message = refusal(env if rest == "absent" else {**env, missing: ""}).message
    assert [name for name in GOOD if name in message] == [missing]
    assert "`make run` creates all settings" in message


def test_config_refuses_short_secret_unquoted() -> None:
    error = refusal({**GOOD, "STRANDLINE_KEY_SECRET": "thirty-one characters are few.."})
    assert "STRANDLINE_KEY_SECRET" in error.message
    assert "thirty-one" not in repr((error.message, error.details, error.__context__))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("STRANDLINE_EMBEDDING_PROVIDER", "ollama"),
        ("STRANDLINE_EMBEDDING_REGION", "Paris"),
        ("STRANDLINE_EMBEDDING_DIMENSIONS", "many"),
        ("STRANDLINE_EMBEDDING_DIMENSIONS", "0"),
        ("STRANDLINE_EMBEDDING_THREADS", "-1"),
        ("STRANDLINE_QUERY_VECTOR_SECONDS", "0"),
        ("STRANDLINE_PRESIGN_SECONDS", "3601"),
        ("STRANDLINE_UPLOAD_MAX_BYTES", "0"),
        ("STRANDLINE_UPLOAD_MAX_BYTES", str(5 * 2**30 + 1)),
        ("STRANDLINE_UPLOAD_SECONDS", "0"),
        ("STRANDLINE_UPLOAD_GRACE_SECONDS", "1799"),  # less than twice the default
    ],
)
def test_config_refuses_unusable_value_by_name(name: str, value: str) -> None:
    message = refusal({**GOOD, name: value}).message
    assert name in message
    assert "no default secret" not in message, "nothing is missing"


JWT = {
    "STRANDLINE_JWT_SECRET": KEY_SECRET,
    "STRANDLINE_JWT_ISSUER": "https://issuer.example",
    "STRANDLINE_JWT_AUDIENCE": "strandline",
}
NO_KEYS = {name: value for name, value in GOOD.items() if name != "STRANDLINE_KEY_SECRET"}
SET = '{"keys": [{"kty": "RSA"}]}'
BY_SET = {
    "STRANDLINE_JWT_SECRET": "",
    "STRANDLINE_JWT_JWKS": SET,
    "STRANDLINE_CURSOR_SECRET": KEY_SECRET,
}


@pytest.mark.parametrize(
    "way",
    [
        JWT,
        {**JWT, **BY_SET},
        {**JWT, **BY_SET, "STRANDLINE_JWT_JWKS": "https://issuer.example/keys"},
        {"STRANDLINE_CLIENT_CERTIFICATES": "true", "STRANDLINE_CURSOR_SECRET": KEY_SECRET},
    ],
)
def test_config_accepts_any_authentication(way: dict[str, str]) -> None:
    loaded_settings = ServiceSettings.from_env(NO_KEYS | way)
    assert loaded_settings.key_secret is None
    assert loaded_settings.jwt_enabled is ("STRANDLINE_JWT_ISSUER" in way)


@pytest.mark.parametrize(
    "way",
    [{**JWT, **BY_SET}, {"STRANDLINE_CLIENT_CERTIFICATES": "true"}],
    ids=["public keys", "certificates"],
)
def test_config_requires_cursor_secret_without_other_secret(way: dict[str, str]) -> None:
    error = refusal(NO_KEYS | way | {"STRANDLINE_CURSOR_SECRET": ""})
    assert "STRANDLINE_CURSOR_SECRET" in error.message


def test_config_picks_secret_that_seals_cursors() -> None:
    by_own = {"STRANDLINE_CURSOR_SECRET": "c" * 32}
    assert ServiceSettings.from_env(GOOD | JWT | by_own).sealing_secret == "c" * 32
    assert ServiceSettings.from_env(GOOD).sealing_secret == GOOD["STRANDLINE_KEY_SECRET"]
    assert ServiceSettings.from_env(NO_KEYS | JWT).sealing_secret == JWT["STRANDLINE_JWT_SECRET"]


def test_config_pins_jwt_algorithms_by_key_kind() -> None:
    assert ServiceSettings.from_env(GOOD | JWT).jwt_algorithms == ("HS256",)
    by_keys = {**GOOD, **JWT, "STRANDLINE_JWT_SECRET": "", "STRANDLINE_JWT_JWKS": SET}
    assert ServiceSettings.from_env(by_keys).jwt_algorithms == ("RS256", "ES256", "EdDSA")
    assert ServiceSettings.from_env(GOOD | JWT).jwt_scope_rights.keys() == {
        "read",
        "write",
        "admin",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("JWT_SECRET", "thirty-one characters are few.."),
        ("JWT_JWKS", SET),  # beside a secret
        ("JWT_ISSUER", ""),
        ("JWT_AUDIENCE", ""),
        ("JWT_ALGORITHMS", "none"),
        ("JWT_ALGORITHMS", "RS256"),
        ("JWT_ALGORITHMS", "HS256,RS256"),
        ("JWT_ALGORITHMS", "HS512"),  # the secret is shorter than that
        ("JWT_SCOPE_RIGHTS", '{"x": "root"}'),
        ("JWT_SCOPE_RIGHTS", "read"),
        ("JWT_UNSCOPED_RIGHTS", "operator"),
        ("CLIENT_CERTIFICATES", "maybe"),
        ("AUTH_REQUIRE_ALL", "maybe"),
    ],
)
def test_config_refuses_half_configured_authentication(name: str, value: str) -> None:
    error = refusal({**GOOD, **JWT, f"STRANDLINE_{name}": value})
    assert f"STRANDLINE_{name}" in error.message
    assert KEY_SECRET not in repr((error.message, error.details, error.__context__))


@pytest.mark.parametrize(
    "source",
    [
        "http://issuer.example/keys",
        "https://user:password@issuer.example/keys",
        "https://",
        "file:///etc/passwd",
        "keys",
        "{",
        "{}",
        '{"keys": []}',
        '{"keys": 7}',
    ],
)
def test_config_jwt_keys_need_set_or_https(source: str) -> None:
    settings = {**GOOD, **JWT, "STRANDLINE_JWT_SECRET": "", "STRANDLINE_JWT_JWKS": source}
    assert "STRANDLINE_JWT_JWKS" in refusal(settings).message


def test_config_reads_environment_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in GOOD.items():
        monkeypatch.setenv(name, value)
    assert get_settings().bucket == "bucket"
    monkeypatch.setenv("STRANDLINE_BUCKET", "another")
    assert get_settings().bucket == "bucket"


def test_config_reads_prefixed_variables_only() -> None:
    error = refusal({name.removeprefix("STRANDLINE_"): value for name, value in GOOD.items()})
    assert all(name in error.message for name in GOOD)


@pytest.mark.parametrize("role", ["superuser", "owner"])
def test_config_refuses_role_that_bypasses_row_security(
    scratch_db: ScratchDatabase, role: str
) -> None:
    database = Database({"superuser": scratch_db.admin_url, "owner": scratch_db.owner_url}[role])
    with pytest.raises(Misconfigured, match="row-level security"):
        database.connection()


def test_config_accepts_application_role(scratch_db: ScratchDatabase) -> None:
    database = Database(scratch_db.url)
    assert database.connection().execute("select 1").fetchone() == (1,)
    database.close()


def test_config_unknown_variable_suggests_nearest_name() -> None:
    known = {"STRANDLINE_LLM_PROVIDER": "openai", "STRANDLINE_DATA_DIR": "x", "PATH": "y"}
    assert find_unknown_settings(known) == []
    unknown = {"STRANDLINE_LLM_PROVDER": "openai", "STRANDLINE_QQQQ": "secret"}
    assert find_unknown_settings(known | unknown) == [
        "STRANDLINE_LLM_PROVDER is no setting and has no effect. Is it STRANDLINE_LLM_PROVIDER?",
        "STRANDLINE_QQQQ is no setting and has no effect.",
    ]


@pytest.mark.source
def test_config_knows_every_variable_in_source() -> None:
    """Names in words and in f-strings; those that end in an underscore are the beginnings of
    several. The shell's completion has a variable of its own."""
    root = Path(__file__).parents[2]
    files = [
        file
        for folder in ("shared", "functions", "infra", "layers")
        for file in (root / folder).rglob("*.py")
    ]
    names = {
        name
        for file in [*files, root / "Makefile"]
        for name in re.findall(r"\bSTRANDLINE_[A-Z_]*[A-Z]\b", file.read_text())
    }
    assert find_unknown_settings(dict.fromkeys(names, "x")) == []
