"""`make prove`: every proof at its full size, part by part, each within a bound of its own.

    python -m tests.prove [--cases N] [--list] [PART ...]

Parts that need the machine's processors run two at a time; those that hold times to a bound run
alone afterwards. A part's bound is about twice what it takes on a quiet machine; the whole is
stopped after 90 minutes. Each prints its name and time when it ends, and what it said; a table
closes the run.
The exit status is 0 only where every part passed.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.prove import proof_runner
from tests.prove.proof_runner import CASES, Part

SUMMARY = "Run every proof at its full size, each within a bound of its own."
MINUTE = 60
BOUND_MINUTES = 90
"""After so many the whole is stopped."""
SHARE = "tests/prove/test_schemathesis.py::test_schemathesis_finds_no_crash_or_undocumented_answer"
PARALLEL = (
    (
        "erasure races",
        "tests/prove/test_erasure_races.py tests/strandline/erasure/test_erasure_marks.py",
        40,
    ),
    ("texts", "tests/prove/test_any_text.py", 20),
    ("fold", "tests/prove/test_fold.py tests/strandline/log/test_statement_events.py", 15),
    ("references", "tests/prove/test_references.py", 20),
    ("exactly once", "tests/prove/test_exactly_once.py", 16),
    (
        "isolation",
        "tests/strandline/db tests/strandline/log/test_lists.py"
        " tests/strandline/recall/test_recall_filters.py"
        " tests/strandline/recall/test_recall_large.py"
        " tests/strandline/sessions/test_store_chains.py",
        10,
    ),
    ("fold rate", "tests/prove/test_fold_rate.py", 12),
    ("archive", "tests/prove/test_archive.py", 16),
    (
        "erasure",
        "tests/prove/test_erasure.py tests/prove/test_erasure_crashes.py"
        " tests/prove/test_eraser_killed.py tests/prove/test_erasure_frozen.py"
        " tests/strandline/erasure/test_eraser.py",
        30,
    ),
    ("uploads", "tests/prove/test_uploads.py", 6),
    ("builder", "tests/prove/test_builder_killed.py tests/strandline/topics/test_growth.py", 20),
    ("replay", "tests/prove/test_replay.py tests/strandline/topics/test_replay.py", 6),
    ("order", "tests/prove/test_order.py", 6),
    ("plans", "tests/prove/test_plans.py", 8),
    ("database cpu", "tests/prove/test_database_cpu.py", 10),
    (
        "graph",
        "tests/prove/test_graph_plans.py tests/strandline/graph/test_extraction_checks.py"
        " tests/strandline/graph/test_heuristic_statements.py"
        " tests/strandline/graph/test_label_propagation.py"
        " tests/strandline/graph/test_name_similarity.py"
        " tests/strandline/graph/test_node_types.py tests/strandline/graph/test_provenance.py"
        " tests/strandline/graph/test_store_observations.py"
        " tests/strandline/graph/test_promoter_injections.py"
        " tests/strandline/graph/test_promoter_runs.py",
        12,
    ),
    ("transfer", "tests/prove/test_graph_transfer.py", 8),
    ("many tenants", "tests/prove/test_many_tenants.py", 8),
    ("writer", "tests/prove/test_writer.py", 12),
    ("crash", "tests/prove/test_crash.py", 8),
    (
        "inputs",
        "tests/functions/test_search_strings.py tests/functions/test_leak_canary.py"
        " tests/functions/test_query_pages.py tests/strandline/context/test_context_text.py",
        8,
    ),
    ("credentials", "tests/strandline/auth/test_authentication.py", 5),
    (
        "service",
        "tests/strandline/local/test_service.py tests/strandline/local/test_tls.py"
        " tests/strandline/local/test_aws.py",
        6,
    ),
    ("models", "tests/strandline/llm tests/strandline/embeddings tests/bench/test_chains.py", 6),
    (
        "stack",
        "tests/infra/test_stack.py tests/infra/test_checkov.py tests/infra/test_kept_templates.py"
        " tests/infra/test_pipeline.py",
        8,
    ),
    ("layers", "tests/layers/test_arm64.py tests/layers/test_runtime.py", 12),
    ("state machine", "tests/strandline/local/test_state_machine.py", 3),
    ("restore", "tests/prove/test_restore.py", 8),
    ("own writes", "tests/prove/test_idempotency.py tests/prove/test_read_own_writes.py", 8),
    ("fields", "tests/prove/test_field_history.py", 6),
    ("deadlock", "tests/prove/test_deadlock.py", 5),
    ("clients", "tests/layers/test_wheel.py tests/strandline/commands", 6),
    ("mcp tools", "tests/prove/test_mcp_tools.py", 8),
    ("outage", "tests/prove/test_database_outage.py", 5),
    (
        "personas",
        "tests/prove/test_centroids.py tests/prove/test_chat_threads.py"
        " tests/prove/test_chat_injections.py tests/prove/test_chat_roles.py"
        " tests/strandline/personas/test_acts.py tests/strandline/personas/test_chat.py"
        " tests/strandline/personas/test_chat_hangs.py",
        12,
    ),
    (
        "properties",
        "tests/strandline/log/test_ingest_json.py tests/strandline/log/test_cid.py"
        " tests/strandline/log/test_event_builder.py tests/strandline/log/test_fulltext_input.py"
        " tests/strandline/log/test_fulltext_words.py"
        " tests/strandline/log/test_passage_spans.py"
        " tests/strandline/test_schemas.py tests/strandline/test_participants.py"
        " tests/strandline/test_moments.py tests/functions/test_timestamps.py"
        " tests/strandline/topics/test_walk.py tests/strandline/chains/test_heat.py"
        " tests/strandline/chains/test_segmentation.py tests/strandline/chains/test_quality.py",
        8,
    ),
    (
        "planted cases",
        "tests/prove/test_schemathesis.py::test_schemathesis_finds_planted_faults",
        5,
    ),
    ("runner", "tests/prove/test_proof_runner.py tests/prove/test_upgrade.py", 5),
    ("browser", "tests/browser", 20),
)
"""Name, tests, minutes; the long ones first, so that both processes end at about the same time."""
SEQUENTIAL = (
    ("shutdown", "tests/strandline/local/test_shutdown.py", 14),
    ("idle", "tests/prove/test_idle.py", 10),
    ("restarts", "tests/prove/test_restarts.py", 10),
    ("quotas", "tests/prove/test_quotas.py", 10),
    ("noisy tenant", "tests/prove/test_noisy_tenant.py", 12),
    ("waits", "tests/prove/test_waits.py", 8),
    ("migrations", "tests/prove/test_migration_locks.py", 4),
    ("due times", "tests/prove/test_due_times.py", 6),
    ("erasure size", "tests/prove/test_erasure_size.py", 12),
)
CASES_MINUTES, UPGRADE_MINUTES = 16, 10
CASES_IN_TIME = 20_000
"""More cases than these may take as much longer."""


def all_parts(cases: int) -> list[Part]:
    """What `make prove` runs, in order."""
    longer = max(1.0, cases / CASES_IN_TIME)
    shares = [
        Part(
            f"cases {share + 1} of 2",
            (*_pytest(f"{SHARE}[{share}]"), "--cases", str(cases)),
            CASES_MINUTES * MINUTE * longer,
        )
        for share in range(2)
    ]
    upgrade = (sys.executable, "-m", "tests.prove.upgrade")
    return [
        *shares,
        Part("upgrade", upgrade, UPGRADE_MINUTES * MINUTE),
        *(Part(name, _pytest(tests), bound * MINUTE) for name, tests, bound in PARALLEL),
        *(
            Part(name, _pytest(tests), bound * MINUTE, runs_alone=True)
            for name, tests, bound in SEQUENTIAL
        ),
    ]


def _pytest(tests: str) -> tuple[str, ...]:
    options = ("-q", "--full", "-s", "-p", "no:cacheprovider")
    return (sys.executable, "-m", "pytest", *options, *tests.split())


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every part passed, 1 when one did not, 2 for a part that there is not."""
    parser = argparse.ArgumentParser(prog="make prove", description=SUMMARY)
    parser.add_argument("--cases", type=int, default=CASES, help="requests that are made up")
    parser.add_argument("--list", action="store_true", help="name the parts and their bounds")
    parser.add_argument("parts", nargs="*", metavar="PART", help="by default all")
    options = parser.parse_args(arguments)
    every_part = all_parts(options.cases)
    unknown = set(options.parts) - {part.name for part in every_part}
    if unknown:
        print(f"make prove: no part {', '.join(sorted(unknown))}; --list names them")
        return 2
    selected = [part for part in every_part if not options.parts or part.name in options.parts]
    if options.list:
        for part in selected:
            print(f"{part.name:16} at most {part.seconds / MINUTE:g} minutes")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the parts too
    with tempfile.TemporaryDirectory(prefix="strandline-prove-") as directory:
        results = proof_runner.run_parts(selected, Path(directory), BOUND_MINUTES * MINUTE)
    print(proof_runner.render_table(results))
    case_count = proof_runner.count_cases(results)
    count_named = [part.name for part in selected].count
    if count_named("cases 1 of 2") and count_named("cases 2 of 2"):
        print(f"{case_count:,} cases were sent")
        if case_count < options.cases:
            print(f"make prove: {options.cases:,} cases were to be sent")
            return 1
    return 0 if all(result.has_passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
