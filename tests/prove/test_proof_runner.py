"""`make prove` fails when a part fails, stops a part that is over its bound, and has a bound."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.prove import __main__ as prove
from tests.prove import proof_runner
from tests.prove.proof_runner import Part

BOUND_SECONDS = 120.0


def part(name: str, code: str, seconds: float = 30, *, alone: bool = False) -> Part:
    return Part(name, (sys.executable, "-c", code), seconds, alone)


def test_proof_runner_reports_failed_part_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = proof_runner.run_parts(
        [part("bad", "exit(3)"), part("good", "print('seen')")], tmp_path, BOUND_SECONDS
    )
    assert [one.has_passed for one in parts] == [False, True]
    output = capsys.readouterr().out
    assert "== bad: FAILED with 3" in output
    assert "seen" in output
    assert "1 of 2 parts did not pass" in proof_runner.render_table(parts)


def test_proof_runner_stops_part_over_its_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof_runner, "GRACE_SECONDS", 0.5)
    child = tmp_path / "child"
    deaf = (
        "import os, signal, time, pathlib; signal.signal(signal.SIGINT, signal.SIG_IGN);"
        f"pid = os.fork(); pid and pathlib.Path({str(child)!r}).write_text(str(pid));"
        "time.sleep(60)"
    )
    (slow_part,) = proof_runner.run_parts([part("slow", deaf, 1.5)], tmp_path, BOUND_SECONDS)
    assert slow_part.status is None
    assert slow_part.seconds < 10
    assert "== slow: STOPPED: over its bound of 2 s" in capsys.readouterr().out
    assert is_gone(int(child.read_text()))


def test_proof_runner_terminated_leaves_no_part_running(tmp_path: Path) -> None:
    child = tmp_path / "child"
    sleeper = (
        f"import os, pathlib, time; pathlib.Path({str(child)!r}).write_text(str(os.getpid()));"
    )
    program = (
        "import sys; from tests.prove import __main__ as prove, proof_runner; from"
        " tests.prove.proof_runner import Part; proof_runner.GRACE_SECONDS = 0.5;"  # if it is deaf
        f" part = Part('slow', (sys.executable, '-c', {sleeper + 'time.sleep(60)'!r}),"
        " 60); prove.all_parts = lambda cases: [part]; sys.exit(prove.main([]))"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as run:
        while not child.exists() or not child.read_text():
            time.sleep(0.05)
        run.terminate()
        assert run.wait(30) != 0
    assert is_gone(int(child.read_text()))


def is_gone(process: int) -> bool:
    """Whether it ended within a moment; one that nobody has waited for yet did."""
    for _ in range(50):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


def test_proof_runner_runs_timed_parts_alone_and_last(tmp_path: Path) -> None:
    code = "import time; print(time.time()); time.sleep(.5); print(time.time())"
    names = ("quiet", "one", "two")
    parts = proof_runner.run_parts(
        [part(name, code, alone=name == "quiet") for name in names], tmp_path, BOUND_SECONDS
    )
    spans = {one.part.name: [float(moment) for moment in one.output.split()] for one in parts}
    assert spans["quiet"][0] >= max(spans["one"][1], spans["two"][1])


def test_proof_runner_sums_cases_and_fails_on_too_few(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shares(cases: int) -> list[Part]:
        output = "print('schemathesis, share 0: 12 cases, 13 requests')"
        return [part("cases 1 of 2", output), part("cases 2 of 2", output)]

    monkeypatch.setattr(prove, "all_parts", shares)
    assert prove.main(["--cases", "24"]) == 0
    assert "24 cases were sent" in capsys.readouterr().out
    assert prove.main(["--cases", "25"]) == 1


def test_proof_runner_fails_with_failed_part(monkeypatch: pytest.MonkeyPatch) -> None:
    def bad(cases: int) -> list[Part]:
        return [part("bad", "exit(1)")]

    monkeypatch.setattr(prove, "all_parts", bad)
    assert prove.main([]) == 1
    assert prove.main(["no such part"]) == 2


def test_proof_runner_bounds_whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs when it is used up is stopped, and what has not begun does not begin."""
    monkeypatch.setattr(proof_runner, "GRACE_SECONDS", 0.5)
    file = tmp_path / "late"
    late = part("late", f"open({str(file)!r}, 'w')", alone=True)
    start = time.monotonic()
    parts = proof_runner.run_parts([part("long", "import time; time.sleep(60)"), late], tmp_path, 2)
    assert time.monotonic() - start < 15
    assert [one.verdict for one in parts] == ["STOPPED: the whole is over its bound"] * 2
    assert not file.exists()
    assert prove.BOUND_MINUTES <= 90


def test_proof_runner_has_every_proof(repository: Path) -> None:
    names = {word.partition("::")[0] for one in prove.all_parts(1) for word in one.command}
    proofs = {str(one.relative_to(repository)) for one in repository.glob("tests/prove/test_*.py")}
    assert proofs <= names
    assert {"tests/strandline/db", "tests/browser"} <= names
    assert all(os.path.exists(repository / name) for name in names if name.startswith("tests/"))


def test_proof_runner_has_every_full_size_test(repository: Path) -> None:
    words = {word for one in prove.all_parts(20_000) for word in one.command}
    paths = {Path(word.partition("::")[0]) for word in words if word.startswith("tests/")}
    sized = re.compile(r"\bproof_size\b|\bcase_count\b|\"--full\"|mark\.proof|@given\b")
    files = [path.relative_to(repository) for path in (repository / "tests").rglob("test_*.py")]
    without_part = [
        str(path)
        for path in files
        if sized.search((repository / path).read_text()) and paths.isdisjoint((path, *path.parents))
    ]
    assert without_part == []
    assert not paths.isdisjoint(files)


@pytest.mark.proof
def test_proof_runner_collects_browser_tests() -> None:
    """`make test` does not run them, for want of a browser: it collects them at least."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "tests/browser"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout
    assert "test_docs_page_call_is_answered" in process.stdout
