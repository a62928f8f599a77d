"""Commands that erase events."""

from __future__ import annotations

import itertools
import sys
from typing import Any, Literal

import click

from strandline.client import answers
from strandline.commands.invocation import Invocation, ReaderArguments, add_reader_options
from strandline.commands.output import print_json, print_table, print_text

_NOT_COUNTED = " and what belongs to no event (uploads, names of sonas, questions)"
"""What an erasure of a speaker or of the tenant takes that a dry run does not count."""


@click.command("erase")
@click.argument("event_ids", metavar="[EVENT]...", nargs=-1, type=click.UUID)
@click.option("--session", "session_id", help="A whole session.")
@click.option("--said-by", "participant", metavar="KIND:NAME", help="Everything by this speaker.")
@click.option("--scope", "scope_id", type=click.UUID, help="A whole scope, or only in this scope.")
@click.option("--tenant", is_flag=True, help="Everything that the tenant has stored.")
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def erase_events(
    run: Invocation,
    event_ids: tuple[Any, ...],
    session_id: str | None,
    participant: str | None,
    scope_id: Any,
    tenant: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Erase events and everything derived from them, permanently (right: erase).

    Name events by their ids, or a session, a speaker, a scope or the tenant.
    """
    targets = [bool(event_ids), session_id is not None, participant is not None, tenant]
    if sum(targets) > 1 or not (any(targets) or scope_id):
        raise click.UsageError("name one: events, --session, --said-by, --scope or --tenant.")
    everything: Literal[True] | None = True if tenant else None
    preview = run.client.preview_erasure(
        event_ids=event_ids or None,
        session_id=session_id,
        participant=participant,
        scope_id=scope_id,
        tenant=everything,
    )
    takes_more = scope_id is None and (participant is not None or tenant)
    what = _describe_preview(preview) + (_NOT_COUNTED if takes_more else "")
    if dry_run:
        run.print_answer(preview, f"{what} would be erased")
        return
    if not yes:
        _require_confirmation(f"Erase {what}?")
    erasure = run.client.erase(
        event_ids=event_ids or None,
        session_id=session_id,
        participant=participant,
        scope_id=scope_id,
        tenant=everything,
    )
    run.print_answer(erasure, f"unreadable; its receipt: strandline erasure {erasure.erasure_id}")


def _require_confirmation(question: str) -> None:
    """Raises ClickException where the answer is no, or nobody can answer."""
    try:
        is_agreed = click.confirm(question)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.ClickException(
            "nothing was erased: nobody answers here. With --yes it does not ask."
        ) from None
    if not is_agreed:
        raise click.ClickException("nothing was erased")


def _describe_preview(preview: answers.ErasurePreview) -> str:
    counts = ((preview.events, "event"), (preview.scopes, "scope"))
    return " in ".join(f"{n:,} {name}{'' if n == 1 else 's'}" for n, name in counts)


@click.command("erasure")
@click.argument("erasure_id", type=click.UUID)
@add_reader_options
@click.pass_obj
def show_erasure(run: Invocation, erasure_id: Any, people: ReaderArguments) -> None:
    """Show an erasure; once it is complete, with its signed receipt.

    `strandline --json erasure ID` prints what `strandline operate receipt` checks.
    """
    status = run.client.erasure(erasure_id, **people)
    if run.as_json:
        print_json(status)
        return
    counts = ", ".join(f"{count:,} {name}" for name, count in sorted(status.counts.items()))
    print_text(f"{status.state}; unreadable since {status.unreadable_at:%Y-%m-%d %H:%M:%S}")
    print_text(counts or "nothing is counted yet")


@click.command("erasures")
@add_reader_options
@click.option("--state", type=click.Choice(["hidden", "complete"]), help="Only these.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True)
@click.pass_obj
def list_erasures(run: Invocation, people: ReaderArguments, state: Any, limit: int) -> None:
    """List erasures, newest first.

    A key with the right to erase that is bound to nobody sees them all.
    """
    erasures = [*itertools.islice(run.client.list_erasures(state=state, **people), limit)]
    if run.as_json:
        print_json(erasures)
        return
    rows = (
        (e.erasure_id, e.kind, e.state, e.asked_at, e.asked_by["user"], e.counts.get("events", 0))
        for e in erasures
    )
    columns = ("erasure", "kind", "state", "asked", "by", "events")
    print_table(columns, rows, "There are no erasures.")


COMMANDS = (erase_events, show_erasure, list_erasures)
