"""What hooks leave on disk: which transcripts there are, how far each was read, what waits to be
stored. All of it is readable by its owner alone, and written so that a process that is killed
leaves each file whole."""

import fcntl
import itertools
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

_AWAY_SECONDS = 30.0
"""For so long the service is not asked again after it was away."""
_FIELDS = frozenset(
    ("participants", "role", "speaker", "type", "content", "session_id", "channel")
) | {"source_event_key", "occurred_at", "metadata"}
"""The fields of a message that a hook writes."""


class TranscriptPlace(NamedTuple):
    """A transcript, and how far it was read."""

    name: str
    """Of its file here."""
    path: str
    session_id: str
    participants: list[str]
    wants_tools: bool
    offset: int = 0
    """Bytes that were read."""
    mark: str = ""
    """What the last of them were: another text there means another file."""


class Spool:
    """The folder of one service and key. Raises OSError where it cannot be written."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.transcripts = os.path.join(folder, "transcripts")
        self.segments = os.path.join(folder, "segments")
        self.damaged = os.path.join(folder, "damaged")
        self._away = os.path.join(folder, "away")
        self._lock = os.path.join(folder, "lock")
        self._report = os.path.join(folder, "report.json")

    def create(self) -> None:
        """Make the folder, if it is not there."""
        if os.path.isdir(self.segments) and os.path.isdir(self.transcripts):
            return
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        os.chmod(self.folder, 0o700)
        os.makedirs(self.transcripts, mode=0o700, exist_ok=True)
        os.makedirs(self.segments, mode=0o700, exist_ok=True)

    # Transcripts ----------------------------------------------------------------------------------

    def register_transcript(self, place: TranscriptPlace) -> None:
        """Note that there is a transcript, unless that is known."""
        path = os.path.join(self.transcripts, place.name)
        if os.path.exists(path):
            return
        draft = self._write_draft([json.dumps(place._asdict())])
        try:
            os.link(draft, path)
        except FileExistsError:
            return  # another hook of the same session was first
        finally:
            os.unlink(draft)

    def save_transcript_place(self, place: TranscriptPlace) -> None:
        """Note how far a transcript was read."""
        self.replace_json(os.path.join(self.transcripts, place.name), place._asdict())

    def list_transcript_places(self) -> Iterator[TranscriptPlace]:
        """All that are known. A file that is no such note is removed: the next hook makes it."""
        for name in sorted(os.listdir(self.transcripts)):
            path = os.path.join(self.transcripts, name)
            try:
                yield TranscriptPlace(**self.read_json(path))
            except TypeError:
                os.unlink(path)

    def forget_transcript(self, place: TranscriptPlace) -> None:
        """Look at a transcript no more, until a hook names it again."""
        os.unlink(os.path.join(self.transcripts, place.name))

    def measure_note_age(self, place: TranscriptPlace) -> float:
        """Seconds since a transcript was noted or read."""
        return time.time() - os.stat(os.path.join(self.transcripts, place.name)).st_mtime

    def remove_old_drafts(self, seconds: float) -> None:
        """Remove what processes that were killed did not finish, if it is so old."""
        for entry in os.scandir(self.folder):
            if entry.name.startswith("draft-") and time.time() - entry.stat().st_mtime > seconds:
                os.unlink(entry)

    # What waits -----------------------------------------------------------------------------------

    def list_segments(self) -> list[str]:
        """The files of messages that wait, the oldest first."""
        return [
            os.path.join(self.segments, name)
            for name in sorted(os.listdir(self.segments))
            if name.endswith(".jsonl")
        ]

    def add_segment(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Let messages wait behind all others, on the disk itself."""
        name = f"{time.time_ns():020d}-{os.getpid()}.jsonl"
        self.replace_segment(os.path.join(self.segments, name), events)

    def replace_segment(self, path: str, events: Sequence[Mapping[str, Any]]) -> None:
        """Write the messages of a file, or leave it as it was. Its age stays."""
        times = (time.time_ns(), _read_creation_ns(path))
        draft = self._write_draft((f"{json.dumps(event)}\n" for event in events), is_synced=True)
        os.utime(draft, ns=times)
        os.replace(draft, path)

    def read_segment(self, path: str) -> list[dict[str, Any]]:
        """The messages of a file, without lines that are damaged."""
        events = map(_parse_message, _read_lines(path))
        return [event for event in events if event is not None]

    def set_damage_aside(self, path: str) -> None:
        """Keep a file with damaged lines as it is in the folder `damaged`, and only its messages
        among what waits. The lines are counted."""
        events = self.read_segment(path)
        damaged_count = len(_read_lines(path)) - len(events)
        if damaged_count:
            self._link_into_damaged(path)
        if not events:
            os.unlink(path)
        elif damaged_count:
            self.replace_segment(path, events)
        if damaged_count:
            self.add_to_report({"damaged": damaged_count})

    def _link_into_damaged(self, path: str) -> None:
        """Keep a file in the folder `damaged` too, under a free name where another has its own."""
        os.makedirs(self.damaged, mode=0o700, exist_ok=True)
        name = os.path.basename(path)
        stem, kept = name.removesuffix(".jsonl"), os.path.join(self.damaged, name)
        for number in itertools.count(1):
            try:
                os.link(path, kept)
            except FileExistsError:  # this one, if a process that was killed came so far
                if not os.path.samefile(path, kept):
                    kept = os.path.join(self.damaged, f"{stem}-{number}.jsonl")
                    continue
            return

    def has_damaged_files(self) -> bool:
        """Whether files with damaged lines are kept."""
        return os.path.isdir(self.damaged) and bool(os.listdir(self.damaged))

    def has_work(self) -> bool:
        """Whether a message waits, or a transcript that can be read has grown since it was."""
        return bool(self.list_segments()) or any(
            measure_file(place.path) > place.offset and _is_readable(place.path)
            for place in self.list_transcript_places()
        )

    # The service's absence, and who delivers ------------------------------------------------------

    @property
    def is_service_away(self) -> bool:
        """Whether the service was away a moment ago."""
        try:
            age = time.time() - os.stat(self._away).st_mtime
        except FileNotFoundError:
            return False
        return 0 <= age < _AWAY_SECONDS

    def note_service_away(self, is_away: bool) -> None:
        """Note whether the service was away just now."""
        if is_away:
            with open(self._away, "w", opener=_open_for_owner):
                os.utime(self._away)
        elif os.path.exists(self._away):
            os.unlink(self._away)

    def try_lock(self, *, waits: bool = False) -> int | None:
        """A descriptor that holds the lock of the one who delivers, until it is closed; None where
        another process has it and nobody `waits` for its end."""
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    # What became of messages ----------------------------------------------------------------------

    def read_report(self) -> dict[str, Any]:
        """Counts of messages that were `stored`, `refused`, `dropped` and found `damaged`, of lines
        that could not be read, and of secrets by rule, since the folder was made; and what is wrong
        now."""
        return self.read_json(self._report)

    def add_to_report(self, counts: Mapping[str, Any]) -> None:
        """Add to the counts."""
        report = self.read_report()
        for name, value in counts.items():
            if isinstance(value, Mapping):
                before = cast("dict[str, int]", report.setdefault(name, {}))
                for rule, count in cast("Mapping[str, int]", value).items():
                    before[rule] = before.get(rule, 0) + count
            else:
                report[name] = report.get(name, 0) + value
        self.replace_json(self._report, report)

    def set_problem(self, sentence: str) -> None:
        """Note what keeps messages from being stored; empty: nothing does."""
        report = self.read_report()
        if report.get("problem", "") != sentence:
            self.replace_json(self._report, {**report, "problem": sentence})

    # Files ----------------------------------------------------------------------------------------

    def read_json(self, path: str) -> dict[str, Any]:
        """The object that a file holds; an empty one where there is none."""
        try:
            with open(path, encoding="utf-8") as file:
                value: object = json.load(file)
        except (FileNotFoundError, ValueError):
            return {}
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}

    def replace_json(self, path: str, value: Mapping[str, Any]) -> None:
        """Write a file whole, or leave it as it was."""
        os.replace(self._write_draft([json.dumps(value)]), path)

    def _write_draft(self, texts: Iterable[str], *, is_synced: bool = False) -> str:
        path = os.path.join(self.folder, f"draft-{os.getpid()}-{time.monotonic_ns()}")
        try:
            with open(path, "x", encoding="utf-8", opener=_open_for_owner) as file:
                file.writelines(texts)
                if is_synced:
                    file.flush()
                    os.fsync(file.fileno())
        except OSError:
            if os.path.exists(path):
                os.unlink(path)  # on a full disk it would take the last that is free
            raise
        return path


def _read_creation_ns(path: str) -> int:
    """The moment in the name of a file of messages, in nanoseconds."""
    return int(os.path.basename(path).partition("-")[0])


def _read_lines(path: str) -> list[bytes]:
    """The lines of a file of messages, without blank ones: who mends a file may empty a line. None
    is written without any: an empty one has a damaged one."""
    with open(path, "rb") as file:
        data = file.read()
    return [line for line in data.splitlines() if line.strip()] if data else [b""]


def _parse_message(line: bytes) -> dict[str, Any] | None:
    """The message of a line; None for one that is damaged: the client takes no other fields than
    those of a hook, and none of another form."""
    from strandline.moments import parse_moment  # no hook needs it

    try:
        value: object = json.loads(line)
        event = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        if event.get("occurred_at") is not None:
            parse_moment(event["occurred_at"])
    except (ValueError, RecursionError):
        return None
    participants = event.get("participants")
    names = cast("list[object]", participants) if isinstance(participants, list) else [None]
    texts = (event.get("content"), event.get("source_event_key"), *names)
    is_whole = event.keys() <= _FIELDS and all(isinstance(text, str) for text in texts)
    return event if is_whole else None


def _open_for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _is_readable(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.R_OK)


def measure_file(path: str) -> int:
    """Bytes of a file; 0 where there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
