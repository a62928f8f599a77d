"""Fixtures of the tests of erasure."""

from datetime import timedelta

import pytest

from strandline.erasure import eraser as eraser_job
from tests.support import Gateway


@pytest.fixture
def eraser(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> str:
    """A key that may read, write and erase, bound to nobody. No request runs beside the job."""
    for wait in ("_REQUEST_WAIT", "_VACUUM_SPACING"):
        monkeypatch.setattr(eraser_job, wait, timedelta(0))
    return gateway.key(rights=["read", "write", "admin", "erase"])
