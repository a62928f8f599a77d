"""`strandline operate`: its words and options, and what becomes of earlier ones. Its work is tested
with its subjects: keys in local/test_service.py, certificates in local/test_tls.py."""

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from strandline.commands.main import main
from strandline.commands.operating import NEW_WORDS

KEYS, CERTIFICATES = ("operate", "keys"), ("operate", "certificates")
ACME = ("--tenant", "acme")


@pytest.mark.parametrize("word", sorted(NEW_WORDS))
def test_operate_refuses_former_top_level_command(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word, *ACME]) == 2
    assert f"use `{NEW_WORDS[word]}`" in capsys.readouterr().err
    help_code = main([*NEW_WORDS[word].split()[1:], "--help"])
    assert help_code == 0, "the command that is named is there"


@pytest.mark.parametrize("word", ["key", "rotate", "revoke", "certificate", "revoke-certificate"])
def test_operate_refuses_former_subcommand(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operate", word, *ACME]) == 2
    assert f"use `{NEW_WORDS[word]}`" in capsys.readouterr().err


@pytest.mark.parametrize("group", [("keys",), KEYS])
def test_operate_refuses_former_option_overlap(
    group: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*group, "rotate", *ACME, "--overlap", "3", "an-id"]) == 2
    assert "--overlap is no option any more: give --grace" in capsys.readouterr().err


@pytest.mark.parametrize("group", [("keys",), KEYS, CERTIFICATES])
def test_operate_refuses_former_option_rights(
    group: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*group, "create", *ACME, "--rights", "read,write"]) == 2
    assert "--rights is no option any more: give --right, once" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ((*KEYS, "revoke"), "--key"),
        ((*KEYS, "rotate"), "--key"),
        ((*CERTIFICATES, "revoke"), "--certificate"),
    ],
)
def test_operate_takes_id_as_argument_only(
    words: tuple[str, ...], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, *ACME, option, "an-id"]) == 2
    assert f"{option} is no option any more: give the" in capsys.readouterr().err


@pytest.mark.parametrize("names", [(), ("--subject", "CN=x", "--pem", "x.pem")])
def test_operate_certificate_needs_subject_or_pem(
    names: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*CERTIFICATES, "create", *ACME, *names]) == 2
    assert "either --subject or --pem" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "user"),
    [((), None), (("--user", "alice"), "user:alice"), (("--user", "user:alice"), "user:alice")],
)
def test_operate_takes_user_with_and_without_kind(
    arguments: tuple[str, ...], user: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    actions = Mock(create_key=Mock(return_value=""), create_certificate=Mock(return_value={}))
    monkeypatch.setattr("strandline.commands.operating._import_operator_actions", lambda: actions)
    assert main([*KEYS, "create", *ACME, *arguments]) == 0
    assert main([*CERTIFICATES, "create", *ACME, "--subject", "CN=x", *arguments]) == 0
    for action in (actions.create_key, actions.create_certificate):
        assert action.call_args.kwargs["user"] == user


def test_operate_help_does_not_import_service(repository: Path) -> None:
    code = """
import sys
from strandline.commands.main import main
assert main(["operate", "keys", "create", "--help"]) == 0
assert "strandline.operator_actions" not in sys.modules and "psycopg" not in sys.modules
sys.modules["psycopg"] = None
sys.exit(main(["operate", "keys", "list", "--tenant", "acme"]))
"""
    process = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(repository / "shared")},
        capture_output=True,
        text=True,
    )
    assert (process.returncode, "Traceback" in process.stderr) == (1, False)
    assert "The service is not installed (psycopg" in process.stderr
    assert "pip install . './shared[all]'" in process.stderr
