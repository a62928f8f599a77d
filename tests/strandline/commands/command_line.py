"""The command line, run in this process."""

from collections.abc import Callable

import pytest

from strandline.commands.main import main
from tests.strandline.client.conftest import HttpService

type Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    service: HttpService, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Runs a command; its exit code, and what it said on both ways."""
    monkeypatch.setenv("STRANDLINE_URL", service.url)
    monkeypatch.setenv("STRANDLINE_API_KEY", service.gateway.key(rights=("read", "write", "admin")))
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(arguments)
        output = capsys.readouterr()
        return code, output.out, output.err

    return call
