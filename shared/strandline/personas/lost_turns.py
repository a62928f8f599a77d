"""What a sweep does for turns: it tells the worker again of those whose message may be lost."""

from datetime import datetime, timedelta

from strandline.aws.work_queue import WorkQueue
from strandline.db.database import TenantDb
from strandline.personas import store_turns

_RESENT_AFTER = timedelta(minutes=10)
_MAX_RESENT = 100


def resend_due(access: TenantDb, work_queue: WorkQueue, now: datetime) -> int:
    """Tell the worker again of turns that wait although their message was sent: it may be lost.
    Returns how many."""
    with access.transaction():
        due = store_turns.postpone_due_turns(access, now, now + _RESENT_AFTER, _MAX_RESENT)
    for turn_id in due:
        work_queue.send_turn(access.caller.tenant, turn_id)
    return len(due)
