"""When jobs have something to do next, in all tenants together: moments, and nothing else."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from strandline.db.database import Connection, translate_errors


def find_next_runs(
    connection: Connection,
    *,
    space: str | None,
    heat: Mapping[str, object],
    grace: timedelta,
    period: timedelta,
    spacing: Mapping[str, timedelta],
    now: datetime,
) -> dict[str, datetime]:
    """By job, the earliest moment at which something comes due; a job that waits for nothing is
    left out. What is overdue comes again in growing pauses, not before its job's `spacing`.

    With an embedding `space` also what tenants are to be looked through for; `heat` are the
    deployment's settings of it, `grace` is how old a payload is that may go, and payloads are
    looked through once in a `period`.
    """
    with translate_errors(connection):
        row: tuple[Any, ...] | None = connection.execute(
            "select next_sweep(%s, %s::jsonb, %s, %s), next_archive(%s, %s, %s, %s)",
            (
                space,
                json.dumps(heat),
                spacing["sweeper"],
                now,
                grace,
                period,
                spacing["archiver"],
                now,
            ),
        ).fetchone()
    assert row is not None, "a select without a table gives one row"
    return {job: due for job, due in zip(("sweeper", "archiver"), row, strict=True) if due}
