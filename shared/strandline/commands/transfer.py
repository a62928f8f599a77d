"""Commands that import and export conversations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from strandline.client import answers
from strandline.client.clients import Strandline
from strandline.client.errors import TooLargeError, make_error
from strandline.client.memory import EventFields
from strandline.client.outbox import MAX_BATCH_BYTES
from strandline.client.request_building import join_participants
from strandline.commands.import_formats import (
    DefaultParticipants,
    Event,
    UnreadableFile,
    read_events,
)
from strandline.commands.invocation import Invocation, ParticipantArguments, participant_options
from strandline.commands.output import make_progress, print_json, print_json_line, print_text

BATCH = 200
_REWRITTEN = {"parts", "model", "blob", "edges", "source_event_key"}
_PORTABLE = (
    *("participants", "role", "content", "session_id"),
    *sorted(EventFields.__optional_keys__ - _REWRITTEN),
)
"""Fields of an event that an append takes back as they are."""
_SHOWN_REFUSALS = 5


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--user", default="user", show_default=True, help="The person's name.")
@click.option("--agent", default="assistant", show_default=True, help="The agent's name.")
@click.pass_obj
def import_file(run: Invocation, file: Path, user: str, agent: str) -> int:
    """Import conversations from a file.

    FILE is JSON Lines as export writes them, conversations.json of ChatGPT or Claude, or LoCoMo's
    JSON. Interrupted, it can be run again: each message is stored once, in order, with its time.
    """
    try:
        events = [*read_events(file, DefaultParticipants(user, agent))]
    except (UnreadableFile, UnicodeDecodeError, OSError) as error:
        raise click.ClickException(str(error)) from None
    stored_count, refusals = 0, list[str]()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with make_progress(*columns, TimeRemainingColumn()) as progress:
        task = progress.add_task(file.name, total=len(events))
        for batch in _batches(events):
            batch_refusals = _store(run.patient_client, batch)
            stored_count += len(batch) - len(batch_refusals)
            refusals += batch_refusals
            progress.advance(task, len(batch))
    if run.as_json:
        print_json({"events": len(events), "stored": stored_count, "refused": refusals})
    else:
        print_text(f"{stored_count} of {len(events)} events of {file.name} are stored")
        for refusal in refusals[:_SHOWN_REFUSALS]:
            print_text(f"refused: {refusal}", err=True)
        if len(refusals) > _SHOWN_REFUSALS:
            print_text(f"and {len(refusals) - _SHOWN_REFUSALS} more refusals", err=True)
    return 1 if refusals else 0


def _batches(events: Iterable[Event]) -> Iterator[list[Event]]:
    """The events in requests of a size that the service takes."""
    batch: list[Event] = []
    size = 0
    for event in events:
        size += len(json.dumps(event))
        if batch and (len(batch) == BATCH or size > MAX_BATCH_BYTES):
            yield batch
            batch, size = [], len(json.dumps(event))
        batch.append(event)
    if batch:
        yield batch


def _store(client: Strandline, batch: Sequence[Event]) -> list[str]:
    """Store events; what was refused, with the reason. Raises ServiceError."""
    try:
        answer = client.add_batch(batch)
    except TooLargeError as error:
        if len(batch) > 1:
            raise
        return [f"{batch[0].get('source_event_key')}: {error}"]
    return [
        f"{event.get('source_event_key')}: {make_error(item.status, item.error.model_dump(), None)}"
        for event, item in zip(batch, answer.results, strict=True)
        if item.error is not None
    ]


@click.command("export")
@participant_options
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="By default standard output."
)
@click.pass_obj
def export(
    run: Invocation,
    people: ParticipantArguments,
    out: Path | None,
) -> None:
    """Write all visible events as JSON Lines.

    They come scope by scope in order, and import reads them. Of a payload the CID is in it, not the
    text.
    """
    left_out: list[str] = []
    lines = _list_appendable_events(run.patient_client, people, left_out)
    count = 0
    if out is None:
        for line in lines:
            print_json_line(line)
            count += 1
    else:
        draft = out.with_name(f".{out.name}.draft")
        with draft.open("w", encoding="utf-8") as file:
            for line in lines:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
                count += 1
        draft.replace(out)
    print_text(f"{count} events exported", err=True)
    if left_out:
        print_text(f"left out: {len(left_out)} statements to the knowledge graph", err=True)


def _list_appendable_events(
    client: Strandline,
    people: ParticipantArguments,
    left_out: list[str],
) -> Iterator[Event]:
    """The events as an append takes them. `left_out` gets the ids of statements, which no append
    takes."""
    readers = join_participants(**people)
    for scope in client.scopes(participants=readers):
        for event in client.events(scope.scope_id, page_size=500, participants=readers):
            if event.type == "statement":
                left_out.append(str(event.event_id))
            else:
                yield _to_appendable_event(event)


def _to_appendable_event(event: answers.EventOut) -> Event:
    whole = event.model_dump(mode="json", exclude_none=True)
    line: Event = {name: whole[name] for name in _PORTABLE if name in whole}
    line["source_event_key"] = f"export:{event.event_id}"
    line.setdefault("occurred_at", whole["recorded_at"])
    if event.parts is not None:
        line["parts"] = [part.model_dump(include={"content", "model"}) for part in event.parts]
    if event.blob is not None:
        line["blob"] = {"cid": event.blob.cid}
    if "parts" in line or "blob" in line:
        line.pop("content", None)
    return line


COMMANDS = (import_file, export)
