"""Which Region a command asks: the one that the guide has a person export."""

import pytest

from infra.account_session import open_account_session


@pytest.fixture(autouse=True)
def no_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "none")


def test_account_session_takes_region_of_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert open_account_session().region == "us-east-1"
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    session = open_account_session()
    assert session.region == session.make_client("sts").meta.region_name == "eu-west-1"
    assert open_account_session("eu-west-3").region == "eu-west-3"


def test_account_session_without_region_says_what_to_export() -> None:
    with pytest.raises(ValueError, match="export AWS_REGION"):
        open_account_session()
