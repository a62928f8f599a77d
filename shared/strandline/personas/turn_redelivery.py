"""A sweep's part for turns: notify the worker again of turns whose message may be lost."""

from datetime import datetime, timedelta

from strandline.aws.work_queue import WorkQueue
from strandline.db.database import TenantDb
from strandline.personas import store_deferred_answers

_RESENT_AFTER = timedelta(minutes=10)
_MAX_RESENT = 100


def notify_worker_of_due_answers(access: TenantDb, work_queue: WorkQueue, now: datetime) -> int:
    """Notify the worker again of turns that still wait although their message was sent, because it
    may be lost. Returns how many."""
    with access.transaction():
        due = store_deferred_answers.postpone_due_answers(
            access, now, now + _RESENT_AFTER, _MAX_RESENT
        )
    for turn_id in due:
        work_queue.send_turn(access.caller.tenant, turn_id)
    return len(due)
