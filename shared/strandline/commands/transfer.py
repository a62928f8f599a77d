"""Commands that import and export conversations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
from rich.progress import MofNCompleteColumn, TextColumn

from strandline.client.clients import Strandline
from strandline.client.errors import ServiceError
from strandline.client.whole_files import open_atomic_draft
from strandline.commands.imports.exported_lines import to_export_line
from strandline.commands.imports.items import Event, ImportOptions
from strandline.commands.imports.reading import FORMATS, read_import_items
from strandline.commands.imports.sending import ImportTally, split_into_batches, store_batch
from strandline.commands.invocation import Invocation, ReaderArguments, add_reader_options
from strandline.commands.output import make_progress_bar, print_json, print_json_line, print_text

_SHOWN = 5


@click.command("import")
@click.argument(
    "paths",
    metavar="PATH...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, path_type=Path),
)
@click.option("--user", default="user", show_default=True, help="The person's name.")
@click.option("--agent", default="assistant", show_default=True, help="The agent's name.")
@click.option(
    "--include-do-not-remember",
    is_flag=True,
    help="Also conversations that ChatGPT was told not to remember, and temporary ones.",
)
@click.pass_obj
def import_paths(
    run: Invocation,
    paths: tuple[Path, ...],
    user: str,
    agent: str,
    include_do_not_remember: bool,
) -> int:
    """Import conversations from files, folders and ZIP archives.

    PATH is JSON Lines as export writes them, conversations.json of ChatGPT or Claude, memories of
    mem0, LoCoMo's JSON, or a folder or a ZIP archive with such files. Interrupted, it can be run
    again: each message is stored once, in order, with its time.
    """
    options = ImportOptions(user, agent, include_do_not_remember)
    tally = ImportTally()
    try:
        with make_progress_bar(TextColumn("{task.description}"), MofNCompleteColumn()) as progress:
            task = progress.add_task("read", total=None)
            for batch in split_into_batches(
                tally.count_all_but_events(read_import_items(paths, options))
            ):
                store_batch(run.patient_client, batch, tally)
                progress.update(task, completed=tally.read_count)
    except (ServiceError, KeyboardInterrupt):
        print_text(f"so far {tally.describe_counts()}; import it again to go on", err=True)
        raise
    _print_import_tally(run, tally, options)
    return 1 if tally.refused_count or not tally.read_count else 0


def _print_import_tally(run: Invocation, tally: ImportTally, options: ImportOptions) -> None:
    if run.as_json:
        print_json(tally.to_json_object())
        return
    print_text(tally.describe_counts())
    if sides := [name for name in options.participants if name in tally.participants]:
        print_text(f"as {' and '.join(sides)}")
    if tally.left_out:
        kinds = ", ".join(f"{kind} ({count})" for kind, count in sorted(tally.left_out.items()))
        print_text(f"left out: {kinds}")
    groups = [*tally.refusal_groups.values()][:_SHOWN]
    for group in groups:
        print_text(f"refused: {group.describe()}", err=True)
    if more := tally.refused_count - sum(group.item_count for group in groups):
        print_text(f"refused: {more} more, for other reasons", err=True)
    for heading, sentences, count in (
        ("note", tally.notes, tally.note_count),
        ("skipped", tally.skipped_files, tally.skipped_count),
    ):
        for sentence in sentences[:_SHOWN]:
            print_text(f"{heading}: {sentence}", err=True)
        if count > _SHOWN:
            print_text(f"{heading}: {count - _SHOWN} more", err=True)
    if not tally.read_count:
        print_text(FORMATS, err=True)


@click.command("export")
@add_reader_options
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="By default standard output."
)
@click.pass_obj
def export_events(
    run: Invocation,
    people: ReaderArguments,
    out: Path | None,
) -> None:
    """Write all visible events as JSON Lines.

    They come scope by scope in order, and import reads them: what is already there is known. Of a
    payload the CID is in it, not the text.
    """
    left_out: list[str] = []
    lines = _list_appendable_events(run.patient_client, people, left_out)
    count = 0
    if out is None:
        for line in lines:
            print_json_line(line)
            count += 1
    else:
        with open_atomic_draft(out) as draft, draft.open("w", encoding="utf-8") as file:
            for line in lines:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
                count += 1
    print_text(f"{count} events exported", err=True)
    if left_out:
        print_text(f"left out: {len(left_out)} statements to the knowledge graph", err=True)


def _list_appendable_events(
    client: Strandline,
    people: ReaderArguments,
    left_out: list[str],
) -> Iterator[Event]:
    """The events as an append takes them. `left_out` gets the ids of statements, which no append
    takes."""
    for scope in client.scopes(**people):
        for event in client.events(scope.scope_id, page_size=500, **people):
            if event.type == "statement":
                left_out.append(str(event.event_id))
            else:
                yield to_export_line(event)


COMMANDS = (import_paths, export_events)
