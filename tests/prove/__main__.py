"""`make prove`: every proof at its full size, part by part, each within a bound of its own.

    python -m tests.prove [--cases N] [--list] [PART ...]

Parts that need the machine's processors run two at a time; those that measure time run alone
afterwards. Each prints its name and time when it ends, and what it said; a table closes the run.
The exit status is 0 only where every part passed.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.conftest import CASES
from tests.prove import parts
from tests.prove.parts import Part

SUMMARY = "Run every proof at its full size, each within a bound of its own."
MINUTE = 60
SHARE = "tests/prove/test_schemathesis.py::test_no_input_crashes_it_and_it_answers_as_it_says"
TOGETHER = (
    ("texts", "tests/prove/test_any_text.py", 11),
    ("fold", "tests/prove/test_fold.py", 7),
    ("isolation", "tests/strandline/store", 4),
    ("archive", "tests/prove/test_archive.py", 9),
    ("uploads", "tests/prove/test_uploads.py", 4),
    ("order", "tests/prove/test_order.py", 4),
    ("plans", "tests/prove/test_plans.py", 3),
    ("searches", "tests/functions/test_search_strings.py", 3),
    ("endings", "tests/strandline/local/test_endings.py", 4),
    ("restore", "tests/prove/test_restore.py", 3),
    ("idempotency", "tests/prove/test_idempotency.py", 3),
    ("deadlock", "tests/prove/test_deadlock.py", 2),
    ("away", "tests/prove/test_away.py", 2),
    ("planted cases", "tests/prove/test_schemathesis.py::test_it_finds_what_is_planted", 2),
    ("driver", "tests/prove/test_parts.py tests/prove/test_upgrade.py", 2),
    ("browser", "tests/browser", 3),
)
"""Name, tests, minutes; the long ones first, so that both processes end at about the same time."""
ALONE = (
    ("fold rate", "tests/prove/test_fold_rate.py", 6),
    ("crash", "tests/prove/test_crash.py", 4),
    ("idle", "tests/prove/test_idle.py", 4),
    ("restarts", "tests/prove/test_restarts.py", 4),
    ("quotas", "tests/prove/test_quotas.py", 5),
    ("neighbour", "tests/prove/test_neighbour.py", 6),
)
CASES_MINUTES, UPGRADE_MINUTES = 10, 8
CASES_WITHIN = 20_000
"""More cases than these may take as much longer."""


def all_parts(cases: int) -> list[Part]:
    """What `make prove` runs, in order."""
    longer = max(1.0, cases / CASES_WITHIN)
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
        *(Part(name, _pytest(tests), bound * MINUTE) for name, tests, bound in TOGETHER),
        Part("upgrade", upgrade, UPGRADE_MINUTES * MINUTE),
        *(Part(name, _pytest(tests), bound * MINUTE, alone=True) for name, tests, bound in ALONE),
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
    asked = parser.parse_args(arguments)
    known = all_parts(asked.cases)
    unknown = set(asked.parts) - {part.name for part in known}
    if unknown:
        print(f"make prove: no part {', '.join(sorted(unknown))}; --list names them")
        return 2
    chosen = [part for part in known if not asked.parts or part.name in asked.parts]
    if asked.list:
        for part in chosen:
            print(f"{part.name:16} at most {part.seconds / MINUTE:g} minutes")
        return 0
    with tempfile.TemporaryDirectory(prefix="strandline-prove-") as place:
        ended = parts.run(chosen, Path(place))
    print(parts.table(ended))
    sent = parts.cases(ended)
    both = [part.name for part in chosen].count
    if both("cases 1 of 2") and both("cases 2 of 2"):
        print(f"{sent:,} cases were sent")
        if sent < asked.cases:
            print(f"make prove: {asked.cases:,} cases were to be sent")
            return 1
    return 0 if all(one.passed for one in ended) else 1


if __name__ == "__main__":
    sys.exit(main())
