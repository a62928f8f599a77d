"""A session of a coding agent."""

from pathlib import Path

import pytest

from tests.strandline.adapters.coding_agents.transcript_lines import ClaudeTranscript


@pytest.fixture
def session(tmp_path: Path) -> ClaudeTranscript:
    session = ClaudeTranscript(tmp_path / "one.jsonl")
    session.ask("The buoy goes out on Friday.")
    session.answer("Noted.")
    return session
