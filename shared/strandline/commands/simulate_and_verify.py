"""Commands that try a service: `simulate` plays thirteen scenarios, `verify` checks what is
stored."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass

import click
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

from strandline.client.errors import ServiceError, UnavailableError
from strandline.client.request_building import join_participants
from strandline.commands.invocation import Invocation, ReaderArguments, add_reader_options
from strandline.commands.output import make_progress_bar, print_json, print_table, print_text
from strandline.commands.simulation_scenarios import (
    SCENARIOS,
    MissingRight,
    Scenario,
    ScenarioEnvironment,
    UnmetExpectation,
    prepare_environment,
)
from strandline.commands.stored_data_checks import CHECKS, StoredData, StoredDataCheck

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
_COLOURS = {PASSED: "green", FAILED: "red", NOT_RUN: "yellow"}


@dataclass(frozen=True)
class CheckOutcome:
    """How a scenario or a check came out."""

    name: str
    verdict: str
    seconds: float
    detail: str


@click.command("simulate")
@click.option(
    "--patience",
    type=click.FloatRange(1, 3600),
    default=120.0,
    show_default=True,
    help="Seconds to wait for background work.",
)
@click.pass_obj
def play_scenarios(run: Invocation, patience: float) -> int:
    """Play thirteen scenarios against a service, each with a verdict.

    From a session to an archived chain. With a key of the right operator they have a tenant of
    their own, else users of their own in the key's tenant, and the last one cannot be played. What
    they store stays. The exit code is 1 if one fails.
    """
    name = f"simulation-{time.strftime('%Y%m%d')}-{secrets.token_hex(4)}"
    world = prepare_environment(run.client, name, patience)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    verdicts: list[CheckOutcome] = []
    with closing(world), make_progress_bar(*columns) as progress:
        task = progress.add_task("simulate", total=len(SCENARIOS))
        for scenario in SCENARIOS:
            progress.update(task, description=scenario.name)
            verdicts.append(_run_and_judge(scenario.name, _bind_scenario(scenario, world)))
            progress.advance(task)
    place = f"tenant {world.tenant}" if world.tenant else f"users {world.run}-…"
    return _print_outcomes(run, verdicts, "scenarios", place)


def _bind_scenario(scenario: Scenario, world: ScenarioEnvironment) -> Callable[[], str]:
    return lambda: scenario.play(world)


@click.command("verify")
@add_reader_options
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="The most blocks, and the most payloads, that are read.",
)
@click.pass_obj
def check_stored_data(
    run: Invocation,
    people: ReaderArguments,
    sample: int,
) -> int:
    """Check what is stored: log, blocks, payloads, edges, chains, communities.

    All that a user's key sees; with another key what --user, --agent or --participant took part in,
    or --everybody. The exit code is 1 if a check fails.
    """
    store = StoredData(run.client, people, sample)
    with make_progress_bar(TextColumn("{task.description}"), MofNCompleteColumn()) as progress:
        task = progress.add_task("events read", total=None)
        store.read_scopes_and_events(lambda count: progress.advance(task, count))
    verdicts = [_run_and_judge(check.name, _bind_check(check, store)) for check in CHECKS]
    names = join_participants(people["user"], people["agent"], people["participants"])
    return _print_outcomes(run, verdicts, "checks", ", ".join(names or ["all that is visible"]))


def _bind_check(check: StoredDataCheck, store: StoredData) -> Callable[[], str]:
    def look() -> str:
        findings = check.run(store)
        if findings.faults:
            raise UnmetExpectation(findings.summarize)
        return findings.summarize

    return look


def _run_and_judge(name: str, play: Callable[[], str]) -> CheckOutcome:
    """The verdict on what `play` does. Raises UnavailableError: then nothing can be judged."""
    start = time.monotonic()
    try:
        verdict, detail = PASSED, play()
    except UnmetExpectation as error:
        verdict, detail = FAILED, str(error)
    except MissingRight as error:
        verdict, detail = NOT_RUN, str(error)
    except UnavailableError:
        raise
    except ServiceError as error:
        verdict, detail = FAILED, str(error)
    return CheckOutcome(name, verdict, round(time.monotonic() - start, 1), detail)


def _print_outcomes(run: Invocation, verdicts: list[CheckOutcome], what: str, place: str) -> int:
    """Print the verdicts; the exit code."""
    counts = {kind: sum(v.verdict == kind for v in verdicts) for kind in _COLOURS}
    if run.as_json:
        summary = {kind.replace(" ", "_"): count for kind, count in counts.items()}
        print_json({**summary, "of": place, what: [asdict(v) for v in verdicts]})
    else:
        print_table(
            ("", what, "verdict", "seconds", "seen"),
            (
                (number, v.name, v.verdict, f"{v.seconds:.1f}", v.detail)
                for number, v in enumerate(verdicts, 1)
            ),
            "",
            colours=_COLOURS,
        )
        others = [f"{count} {kind}" for kind, count in counts.items() if count and kind != PASSED]
        print_text(", ".join([f"{counts[PASSED]} of {len(verdicts)} {what} passed", *others]))
        print_text(f"of {place}", err=True)
    return 1 if counts[FAILED] else 0


COMMANDS = (play_scenarios, check_stored_data)
