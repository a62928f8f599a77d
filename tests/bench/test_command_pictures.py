"""The pictures of the command line: text with its colours, and nothing from elsewhere."""

import re
from pathlib import Path

import pytest

from strandline.commands.main import cli
from tests.bench.command_pictures import PICTURES, Picture, render

MAX_BYTES = 60_000


def test_command_picture_draws_run_with_colours() -> None:
    svg = render("a title", [("strandline status", "\x1b[32mok\x1b[0m <b>&</b>\n")], "x")
    words = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert {"$&#160;", "strandline&#160;status", "ok"} <= set(words)
    assert "&lt;b&gt;&amp;&lt;/b&gt;" in svg.replace("&#160;", " ")
    assert re.search(r"fill: #7ee787", svg), "green"


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_command_picture_shows_existing_commands(picture: Picture, repository: Path) -> None:
    svg = (repository / "docs" / f"{picture.name}.svg").read_text("utf-8")
    assert len(svg) < MAX_BYTES
    assert re.findall(r"https?://(?!www\.w3\.org|www\.textualize\.io|127\.0\.0\.1)", svg) == []
    assert "<script" not in svg
    copy = svg.replace("&#160;", " ")
    for command in picture.commands:
        assert command.split()[1] in cli.commands
        assert " ".join(command.split()[:2]) in copy, f"make bench NAME=pictures draws {command}"
    page = (repository / "docs" / "commands.md").read_text("utf-8")
    assert f"]({picture.name}.svg)" in page
