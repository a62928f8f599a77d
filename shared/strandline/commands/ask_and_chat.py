"""Commands that have the language model answer from memory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from strandline.commands.invocation import (
    Invocation,
    ParticipantArguments,
    ReaderArguments,
    participant_options,
    reader_options,
)
from strandline.commands.output import format_value, make_progress, print_json, print_text

if TYPE_CHECKING:
    from strandline.client import answers

_POLL_SECONDS = 1.0
_sona_weight = click.option(
    "--sona-weight",
    type=click.FloatRange(0, 1),
    default=0.0,
    help="How much what belongs to the sona is preferred: 0 (by default) to 1.",
)


@click.command()
@click.argument("query")
@reader_options
@click.option("--sona", help="The sona that answers, by id or name.")
@_sona_weight
@click.pass_obj
def ask(
    run: Invocation,
    query: str,
    people: ReaderArguments,
    sona: str | None,
    sona_weight: float,
) -> None:
    """Have the language model answer QUERY from memory; nothing is stored."""
    with _show_waiting():
        turn = run.client.answer(
            query,
            **people,
            sona=sona,
            weights={"sona": sona_weight} if sona_weight else None,
        )
        turn = _wait(run, turn, people)
    _print_turn(run, turn)


@click.command()
@click.argument("message")
@participant_options
@click.option("--session", "session_id", help="The conversation that it belongs to.")
@click.option("--sona", help="The sona that replies, by id or name; created if new.")
@_sona_weight
@click.pass_obj
def chat(
    run: Invocation,
    message: str,
    people: ParticipantArguments,
    session_id: str | None,
    sona: str | None,
    sona_weight: float,
) -> None:
    """Store MESSAGE, and the language model's reply to it from memory."""
    with _show_waiting():
        turn = run.client.chat(
            message,
            **people,
            session_id=session_id,
            sona=sona,
            weights={"sona": sona_weight} if sona_weight else None,
        )
        turn = _wait(run, turn, ReaderArguments(**people, everybody=None))
    _print_turn(run, turn)


def _show_waiting() -> Progress:
    """Shows on a terminal that the model is at work, and for how long."""
    progress = make_progress(TextColumn("{task.description}"), TimeElapsedColumn())
    progress.add_task("waiting for the language model…", total=None)
    return progress


def _wait(
    run: Invocation,
    turn: answers.TurnOut,
    people: ReaderArguments,
) -> answers.TurnOut:
    """The turn once it is finished."""
    while turn.state == "waiting" and turn.turn_id is not None:
        time.sleep(_POLL_SECONDS)
        turn = run.client.turn(turn.turn_id, **people)
    return turn


def _print_turn(run: Invocation, turn: answers.TurnOut) -> None:
    if run.as_json:
        print_json(turn)
        return
    if turn.text is None:
        raise click.ClickException(f"the language model gave no answer: {turn.reason}")
    print_text("\n".join(map(format_value, turn.text.splitlines())))
    for citation in turn.citations:
        print_text(f"[{citation.n}] event {citation.event_id}")


COMMANDS = (ask, chat)
