"""Settings from the environment: what is missing is named, and no secret is made up."""

import pytest

from strandline.config import Settings, settings
from strandline.db import Database
from strandline.errors import Misconfigured
from tests.support import KEY_SECRET, Base

GOOD = {
    "STRANDLINE_DATABASE_URL": "postgresql://app@localhost/strandline",
    "STRANDLINE_BUCKET": "bucket",
    "STRANDLINE_KEY_SECRET": KEY_SECRET,
}


def refusal(env: dict[str, str]) -> Misconfigured:
    with pytest.raises(Misconfigured) as refused:
        Settings.from_env(env)
    return refused.value


def test_the_least_that_is_needed_is_enough() -> None:
    made = Settings.from_env(GOOD)
    assert (made.bucket, made.queue_url, made.embedding_provider) == ("bucket", "", "local")


def test_every_missing_variable_is_named_at_once() -> None:
    said = refusal({}).message
    assert all(name in said for name in GOOD)
    assert "STRANDLINE_QUEUE_URL" not in said


@pytest.mark.parametrize("missing", sorted(GOOD))
@pytest.mark.parametrize("left", ["absent", "empty"])
def test_a_missing_variable_is_named_and_no_other(missing: str, left: str) -> None:
    env = {name: value for name, value in GOOD.items() if name != missing}
    said = refusal(env if left == "absent" else {**env, missing: ""}).message
    assert [name for name in GOOD if name in said] == [missing]


def test_a_short_secret_is_refused_and_not_repeated() -> None:
    refused = refusal({**GOOD, "STRANDLINE_KEY_SECRET": "thirty-one characters are few.."})
    assert "STRANDLINE_KEY_SECRET" in refused.message
    assert "thirty-one" not in repr((refused.message, refused.details, refused.__context__))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("STRANDLINE_EMBEDDING_PROVIDER", "bedrock"),
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
def test_an_unusable_value_is_refused_by_name(name: str, value: str) -> None:
    assert name in refusal({**GOOD, name: value}).message


def test_settings_are_read_once_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in GOOD.items():
        monkeypatch.setenv(name, value)
    assert settings().bucket == "bucket"
    monkeypatch.setenv("STRANDLINE_BUCKET", "another")
    assert settings().bucket == "bucket"


def test_only_prefixed_variables_are_read() -> None:
    refused = refusal({name.removeprefix("STRANDLINE_"): value for name, value in GOOD.items()})
    assert all(name in refused.message for name in GOOD)


@pytest.mark.parametrize("role", ["superuser", "owner"])
def test_a_role_that_could_look_past_row_level_security_is_refused(base: Base, role: str) -> None:
    database = Database({"superuser": base.admin_url, "owner": base.owner_url}[role])
    with pytest.raises(Misconfigured, match="row-level security"):
        database.connection()


def test_the_application_role_is_served(base: Base) -> None:
    database = Database(base.url)
    assert database.connection().execute("select 1").fetchone() == (1,)
    database.close()
