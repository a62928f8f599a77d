"""Stores what hooks left, in a process of its own: reads the transcripts that have grown, writes
what they say to disk, and sends it through the client. Each step can be killed: what was not noted
is done again, and the messages' keys let nothing be stored twice.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from strandline.adapters.coding_agents.hook_settings import parse_options, read_hook_settings
from strandline.adapters.coding_agents.spool import Spool, TranscriptPlace, measure_file
from strandline.adapters.coding_agents.transcripts import read_transcript_part
from strandline.client.clients import Strandline
from strandline.client.errors import (
    ForbiddenError,
    GoneError,
    KeyConflictError,
    QuotaExceededError,
    ServiceError,
    UnauthorizedError,
    UnavailableError,
)
from strandline.client.outbox import NotStoredError, UnstoredEvent
from strandline.client.retries import Retry

_PART_EVENTS, _PART_BYTES = 200, 4 * 1024 * 1024
MAX_SPOOL_BYTES = 50 * 1024 * 1024
MAX_SPOOL_SECONDS = 7 * 86_400.0
_MAX_QUIET_SECONDS = 30 * 86_400.0
"""A transcript that nobody touched for so long is no more looked at."""
_MAX_ABSENCE_SECONDS = 86_400.0
"""A transcript that is not there for so long was removed."""
_MAX_DRAFT_SECONDS = 3600.0
_GIVE_UP_AFTER = 20.0
"""Seconds that a batch is repeated for; the next hook begins again."""
_WAITING_ERRORS = (UnavailableError, UnauthorizedError, ForbiddenError, QuotaExceededError)
"""Errors that say nothing about the message: it waits."""
_UNREADABLE = "A transcript cannot be read: "
_SETTLED_ERRORS = (KeyConflictError, GoneError)
"""It was stored before, with other settings or in another session; or it was erased since."""


def deliver(spool: Spool, client: Strandline, *, is_urgent: bool = False) -> None:
    """Store all that there is, unless another process is at it. The service is not asked if it was
    away a moment ago. What `is_urgent` waits for the other process, and asks. Raises OSError."""
    while (descriptor := spool.try_lock(waits=is_urgent)) is not None:
        try:
            can_send = is_urgent or not spool.is_service_away
            can_send = can_send and send_segments(spool, client)
            sizes: dict[str, int] = {}
            read_errors: list[OSError] = []
            for _ in spool_new_messages(spool, sizes, read_errors):
                drop_oldest_segments_over_limits(spool)
                can_send = can_send and send_segments(spool, client)
            drop_oldest_segments_over_limits(spool)
            _append_to_problem(spool, read_errors)
        finally:
            os.close(descriptor)
        has_grown = any(
            measure_file(place.path) != sizes.get(place.path, 0)
            for place in spool.list_transcript_places()
        )
        if not has_grown and not (can_send and spool.list_segments()):
            return  # else a hook that came meanwhile left it to this process


# From transcripts to the disk ---------------------------------------------------------------------


def spool_new_messages(
    spool: Spool, transcript_sizes: dict[str, int], read_errors: list[OSError]
) -> Iterator[None]:
    """Write to disk what transcripts say since they were read, and yield after each part.
    `transcript_sizes` gets the bytes of each transcript before it was read, `read_errors` what kept
    one from being read: it keeps none of the others. Raises OSError for the spool's own files."""
    for place in spool.list_transcript_places():
        try:
            state = os.stat(place.path)
        except OSError:
            if spool.measure_note_age(place) > _MAX_ABSENCE_SECONDS:
                spool.forget_transcript(place)
            continue
        transcript_sizes[place.path] = state.st_size
        if time.time() - state.st_mtime > _MAX_QUIET_SECONDS:
            spool.forget_transcript(place)
        elif state.st_size != place.offset:
            yield from _spool_transcript(spool, place, read_errors)


def _spool_transcript(
    spool: Spool, place: TranscriptPlace, read_errors: list[OSError]
) -> Iterator[None]:
    while True:
        try:
            part = read_transcript_part(place, max_events=_PART_EVENTS, max_bytes=_PART_BYTES)
        except OSError as error:
            read_errors.append(error)
            return
        if part.events:
            spool.add_segment(part.events)
        if part.place != place:
            spool.save_transcript_place(part.place)  # after what it says is on the disk
            counts = {"unreadable_lines": part.unreadable_lines}
            spool.add_to_report({**counts, "scrubbed": part.scrub_counts})
            yield
        place = part.place
        if part.is_last:
            return


def _append_to_problem(spool: Spool, read_errors: Sequence[OSError]) -> None:
    """Say that a transcript cannot be read, behind what keeps all messages; or say it no more."""
    problem = str(spool.read_report().get("problem", "")).partition(_UNREADABLE)[0].strip()
    if read_errors:
        before = f"{problem.removesuffix('.')}. " if problem else ""
        problem = f"{before}{_UNREADABLE}{read_errors[0]}."
    spool.set_problem(problem)


def drop_oldest_segments_over_limits(spool: Spool) -> None:
    """Keep what waits within its bounds; what is dropped is counted."""
    spool.remove_old_drafts(_MAX_DRAFT_SECONDS)
    segments = spool.list_segments()
    sizes = {path: os.stat(path).st_size for path in segments}
    total = sum(sizes.values())
    for path in segments:
        is_old = time.time() - os.stat(path).st_mtime > MAX_SPOOL_SECONDS
        if total <= MAX_SPOOL_BYTES and not is_old:
            break
        spool.add_to_report({"dropped": len(spool.read_segment(path))})
        os.unlink(path)
        total -= sizes[path]


# From the disk to the service ---------------------------------------------------------------------


def send_segments(spool: Spool, client: Strandline) -> bool:
    """Store what waits, in order. Whether all of it is settled."""
    for path in spool.list_segments():
        spool.set_damage_aside(path)
    for path in spool.list_segments():
        events = spool.read_segment(path)
        failures = _store(client, events)
        waiting_failures = [
            failure for failure in failures if isinstance(failure.error, _WAITING_ERRORS)
        ]
        refusals = [
            failure
            for failure in failures
            if not isinstance(failure.error, (*_WAITING_ERRORS, *_SETTLED_ERRORS))
        ]
        spool.add_to_report(
            {
                "stored": len(events) - len(waiting_failures) - len(refusals),
                "refused": len(refusals),
            }
        )
        first = next(iter([*waiting_failures, *refusals]), None)
        spool.set_problem(
            "" if first is None else _explain(first.error, is_kept=bool(waiting_failures))
        )
        spool.note_service_away(
            any(isinstance(f.error, UnavailableError) for f in waiting_failures)
        )
        if waiting_failures:
            spool.replace_segment(path, [failure.event for failure in waiting_failures])
            return False
        os.unlink(path)
    return True


def _store(client: Strandline, events: Sequence[Mapping[str, Any]]) -> list[UnstoredEvent]:
    """The events that were not stored, in order."""
    failures: list[UnstoredEvent] = []
    with suppress(NotStoredError):  # each of them is in `failures`
        writer = client.writer(linger=0, give_up_after=_GIVE_UP_AFTER, on_failure=failures.append)
        with writer:
            for event in events:
                writer.add(**cast("dict[str, Any]", event))
    return failures


def _explain(error: ServiceError, *, is_kept: bool) -> str:
    fate = "wait on disk" if is_kept else "were refused and are not stored"
    return f"Messages {fate}: {error}"


# Programs -----------------------------------------------------------------------------------------


def flush_now(arguments: Sequence[str]) -> int:
    """Store what waits, and print what there is. The exit code: 0 where nothing waits any more."""
    try:
        settings = read_hook_settings({**os.environ, **parse_options(arguments)}, None)
    except ValueError as error:
        sys.stderr.write(f"strandline: {error}\n")
        return 2
    spool = Spool(settings.folder)
    try:
        spool.create()
        with Strandline(settings.url, settings.key, retry=Retry(seconds=_GIVE_UP_AFTER)) as client:
            deliver(spool, client, is_urgent=True)
        waiting = sum(len(spool.read_segment(path)) for path in spool.list_segments())
        report = {**spool.read_report(), "waiting": waiting, "folder": spool.folder}
    except OSError as error:
        sys.stderr.write(
            f"strandline: folder: {error}. Make room there, or set STRANDLINE_HOOK_FOLDER to a"
            " folder that you may write\n"
        )
        return 2
    sys.stdout.write(f"{json.dumps(report, indent=2)}\n")
    return 1 if waiting else 0


def main() -> None:
    """What a hook starts: the folder is the argument, the service is in the environment."""
    spool = Spool(sys.argv[1])
    try:
        with Strandline(retry=Retry(seconds=_GIVE_UP_AFTER)) as client:
            deliver(spool, client)
    except (OSError, ValueError) as error:
        spool.set_problem(f"Messages are not stored: {error}")
        raise


if __name__ == "__main__":
    main()
