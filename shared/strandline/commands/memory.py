"""Commands that store and ask, and that have the language model answer from memory."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from strandline.commands.invocation import (
    Invocation,
    ParticipantArguments,
    ReaderArguments,
    add_participant_options,
    add_reader_options,
)
from strandline.commands.output import (
    format_cell,
    make_progress_bar,
    print_json,
    print_table,
    print_text,
)

if TYPE_CHECKING:
    from strandline.client import answers

_POLL_SECONDS = 1.0
_AS_OF = "Answer as of this time, such as 2026-05-08T00:00:00Z: without what came later."
_BREADTH = "Whether QUERY needs a list, an order or a summary; else its form tells."
_SHOWN_CHARS, _CHARS_BEFORE_MATCH = 240, 60
"""Of a text in a table."""


@click.command("add")
@click.argument("text")
@add_participant_options
@click.option("--role", type=click.Choice(["user", "agent", "system"]), default="user")
@click.option("--session", "session_id", help="The conversation that it belongs to.")
@click.option("--event-key", help="Your own key: the same key is stored once.")
@click.pass_obj
def add_event(
    run: Invocation,
    text: str,
    people: ParticipantArguments,
    role: str,
    session_id: str | None,
    event_key: str | None,
) -> None:
    """Store an event. TEXT is what was said; - reads it from standard input."""
    content = sys.stdin.read() if text == "-" else text
    receipt = run.client.add(
        content,
        **people,
        role="agent" if role == "agent" else "system" if role == "system" else "user",
        session_id=session_id,
        source_event_key=event_key,
    )
    run.print_answer(
        receipt, f"stored as event {receipt.event_id}, number {receipt.seq} of its scope"
    )


@click.command("recall")
@click.argument("query")
@add_reader_options
@click.option("--limit", type=click.IntRange(1, 100), default=10, show_default=True)
@click.option("--session", "session_id", help="Only events of this session.")
@click.option("--as-of", help=_AS_OF)
@click.option("--breadth/--no-breadth", default=None, help=_BREADTH)
@click.option("--only-words", is_flag=True, help="Search by words alone, not by meaning.")
@click.option("--full", is_flag=True, help="Show long texts whole, and the ids of events.")
@click.pass_obj
def print_recall(
    run: Invocation,
    query: str,
    people: ReaderArguments,
    limit: int,
    session_id: str | None,
    as_of: str | None,
    breadth: bool | None,
    only_words: bool,
    full: bool,
) -> None:
    """Ask: the events that answer QUERY, best first."""
    answer = run.client.recall(
        query,
        **people,
        limit=limit,
        session_id=session_id,
        as_of=as_of,
        breadth=breadth,
        only_words=only_words or None,
    )
    if run.as_json:
        print_json(answer)
        return
    print_table(
        ("relevance", "when", "who", "what", *["event"] * full),
        (
            (hit.relevance, hit.occurred_at, hit.speaker, _describe_hit(hit, full))
            + (hit.event_id,) * full
            for hit in answer.hits
        ),
        "Nothing is known about this.",
    )
    for reason in answer.degraded:
        note = _LIMIT_NOTES.get(reason, f"the answer is limited: {reason}")
        print_text(f"strandline: {note}", err=True)


def _describe_hit(hit: Any, full: bool) -> str:
    """The text of a hit, and how many near-duplicates share its place."""
    start = 0 if full or not hit.text else _find_match(hit)
    whole = hit.text or hit.excerpt or hit.name or _describe_nameless_payload(hit)
    text = _cut_text_for_table(whole[start:], full)
    text = f"…{text}" if start else text
    return f"{text} (and {hit.similar.count} more like it)" if hit.similar else text


def _describe_nameless_payload(hit: Any) -> str:
    """In place of a payload's text that recall did not read."""
    if hit.piece is None:
        return "(no text)"
    first, last = hit.piece.start_char, hit.piece.end_char
    return f"(a payload, of which the characters {first:,} to {last:,} match)"


_LIMIT_NOTES = {
    "no_scope_in_view": "these participants never took part together; is each name written as when "
    "it was stored? Names keep their case",
    "payloads_unread": "the texts of payloads could not be read now; ask again",
}


def _find_match(hit: Any) -> int:
    """Where a table begins to show a text: a little before the rarest word of the question in the
    part that matches; 0 for a short text."""
    if hit.piece is None or len(hit.text) <= _SHOWN_CHARS:
        return 0
    first, last = hit.piece.start_char, hit.piece.end_char
    part = hit.text[first:last].lower()
    places = [place for word in hit.why if (place := part.find(word.lower())) >= 0]
    return max(0, first + (places[0] if places else 0) - _CHARS_BEFORE_MATCH)


def _cut_text_for_table(text: str, full: bool) -> str:
    """A text as a table shows it."""
    return text if full or len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS].rstrip()}…"


@click.command("context")
@click.argument("query", required=False)
@add_reader_options
@click.option("--budget", type=click.IntRange(100, 8000), help="The most tokens of the text.")
@click.option("--session", "session_id", help="The session whose latest events are shown.")
@click.option("--as-of", help=_AS_OF)
@click.option("--breadth/--no-breadth", default=None, help=_BREADTH)
@click.pass_obj
def print_context_text(
    run: Invocation,
    query: str | None,
    people: ReaderArguments,
    budget: int | None,
    session_id: str | None,
    as_of: str | None,
    breadth: bool | None,
) -> None:
    """Print what memory holds for a prompt, as one block of text."""
    answer = run.client.context(
        query,
        **people,
        budget=budget,
        session_id=session_id,
        as_of=as_of,
        breadth=breadth,
    )
    run.print_answer(answer, answer.text)


@click.command("upload")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@add_participant_options
@click.option("--session", "session_id", help="The conversation that it belongs to.")
@click.pass_obj
def upload_file(
    run: Invocation,
    file: Path,
    people: ParticipantArguments,
    session_id: str | None,
) -> None:
    """Upload FILE, and store an event that cites it."""
    if file.is_file() and file.stat().st_size == 0:
        raise click.UsageError("FILE is empty: there is nothing to store.")
    with make_progress_bar(*Progress.get_default_columns()) as progress:
        task = progress.add_task(file.name, total=file.stat().st_size)
        receipt = run.patient_client.upload(
            file,
            **people,
            session_id=session_id,
            progress=lambda position, _: progress.update(task, completed=position),
        )
    run.print_answer(
        receipt, f"stored as event {receipt.event_id}, CID {receipt.blob and receipt.blob.cid}"
    )


_sona_weight = click.option(
    "--sona-weight",
    type=click.FloatRange(0, 1),
    default=0.0,
    help="How much what belongs to the sona is preferred: 0 (by default) to 1.",
)


@click.command("ask")
@click.argument("query")
@add_reader_options
@click.option("--sona", help="The sona that answers, by id or name.")
@_sona_weight
@click.pass_obj
def ask_model(
    run: Invocation,
    query: str,
    people: ReaderArguments,
    sona: str | None,
    sona_weight: float,
) -> None:
    """Have the language model answer QUERY from memory; nothing is stored."""
    with _make_waiting_indicator():
        turn = run.client.answer(
            query,
            **people,
            sona=sona,
            weights={"sona": sona_weight} if sona_weight else None,
        )
        turn = _wait_for_turn(run, turn, people)
    _print_turn(run, turn)


@click.command("chat")
@click.argument("message")
@add_participant_options
@click.option("--session", "session_id", help="The conversation that it belongs to.")
@click.option("--sona", help="The sona that replies, by id or name; created if new.")
@_sona_weight
@click.pass_obj
def chat_with_model(
    run: Invocation,
    message: str,
    people: ParticipantArguments,
    session_id: str | None,
    sona: str | None,
    sona_weight: float,
) -> None:
    """Store MESSAGE, and the language model's reply to it from memory."""
    with _make_waiting_indicator():
        turn = run.client.chat(
            message,
            **people,
            session_id=session_id,
            sona=sona,
            weights={"sona": sona_weight} if sona_weight else None,
        )
        turn = _wait_for_turn(run, turn, ReaderArguments(**people, everybody=None))
    _print_turn(run, turn)


def _make_waiting_indicator() -> Progress:
    """Shows on a terminal that the model is at work, and for how long."""
    progress = make_progress_bar(TextColumn("{task.description}"), TimeElapsedColumn())
    progress.add_task("waiting for the language model…", total=None)
    return progress


def _wait_for_turn(
    run: Invocation,
    turn: answers.ModelAnswerOut,
    people: ReaderArguments,
) -> answers.ModelAnswerOut:
    """The turn once it is finished."""
    while turn.state == "waiting" and turn.turn_id is not None:
        time.sleep(_POLL_SECONDS)
        turn = run.client.turn(turn.turn_id, **people)
    return turn


def _print_turn(run: Invocation, turn: answers.ModelAnswerOut) -> None:
    if run.as_json:
        print_json(turn)
        return
    if turn.text is None:
        raise click.ClickException(f"the language model gave no answer: {turn.reason}")
    print_text("\n".join(map(format_cell, turn.text.splitlines())))
    for citation in turn.citations:
        print_text(f"[{citation.n}] event {citation.event_id}")


COMMANDS = (
    add_event,
    print_recall,
    print_context_text,
    upload_file,
    ask_model,
    chat_with_model,
)
