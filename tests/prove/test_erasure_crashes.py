"""A crash before each step of an erasure, one after the other: of the request nothing is stored,
and the job goes on with what is left."""

from typing import Any

import pytest

from strandline.erasure import (
    erase_events,
    receipts,
)
from strandline.local.aws import LocalAws
from tests.prove.erasure_fixtures import embedder, no_waits
from tests.prove.erasure_steps import (
    CASES,
    Steps,
    tell,
)
from tests.prove.erasure_stores import ERASED_WORD, ERASURES, every_byte
from tests.support import Gateway, ScratchDatabase

__all__ = ["embedder", "no_waits"]  # fixtures


class Crashes:
    """Each of these steps raises once, when it is reached, and does nothing then."""

    def __init__(self, patch: pytest.MonkeyPatch, steps: Steps) -> None:
        self.ahead = {name for _, name in steps}
        for place, name in steps:
            patch.setattr(place, name, self._crashing(name, getattr(place, name)))

    def _crashing(self, name: str, original: Any) -> Any:
        def step(*arguments: Any, **options: Any) -> Any:
            if name in self.ahead:
                self.ahead.remove(name)
                raise RuntimeError(name)
            return original(*arguments, **options)

        return step


STORED_ROWS = """
    select count(*) filter (where erased_at is null),
        (select count(*) from erasures), (select count(*) from erased_events)
    from events where %s::text is null or speaker = %s
"""


@pytest.mark.proof
@pytest.mark.parametrize("case", CASES)
def test_erasure_crash_at_each_step_resumes(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    aws: LocalAws,
    monkeypatch: pytest.MonkeyPatch,
    case: str,
) -> None:
    selector, request_steps, job_steps = CASES[case]
    key = gateway.key(rights=["read", "write", "admin", "erase"])
    tell(gateway, key, scratch_db)
    speaker = selector.get("participant")
    if case == "marked":
        monkeypatch.setattr(erase_events, "EVENTS_AT_ONCE", 3)
    ((message, _, _),) = before = scratch_db.rows(STORED_ROWS, speaker, speaker)

    crashes = Crashes(monkeypatch, request_steps)
    while (reply := gateway.call("POST", ERASURES, selector, key=key)).status == 500:
        assert scratch_db.rows(STORED_ROWS, speaker, speaker) == before, "nothing of it is stored"
    assert (reply.status, crashes.ahead) == (202, set()), reply.text
    assert scratch_db.rows(STORED_ROWS, speaker, speaker) != before

    path = f"{ERASURES}/{reply.body['erasure_id']}"
    crashes = Crashes(monkeypatch, job_steps)
    for _ in range(2 * len(job_steps)):
        gateway.run_job("eraser", "acme")
        payloads = ("blob_removals", "erased_payloads")
        for table in () if "postpone" in crashes.ahead else payloads:
            later = f"update {table} set marked_at = marked_at - interval '1 hour'"  # noqa: S608
            scratch_db.rows(later)
        if scratch_db.rows("select 1 from erasures where completed_at is not null"):
            break
    assert crashes.ahead == set()
    body = gateway.call("GET", path, key=key).body
    receipt = body["receipt"]
    assert receipts.verify_receipt(body["public_key"], receipt, body["signature"])
    assert (receipt["event_count"], receipt["counts"]["events"]) == (message, message)
    assert receipt["vacuumed_at"] is not None
    assert ERASED_WORD not in every_byte(scratch_db, aws)
