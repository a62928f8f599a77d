"""What a receipt says cannot be reached, and what the documentation says: one list."""

from pathlib import Path

from strandline.erasure.data_inventory import UNREACHED

PAGE = Path(__file__).parents[3] / "docs" / "erasure.md"


def test_erasure_unreached_docs_match_receipt() -> None:
    section = PAGE.read_text().partition("## Not reached")[2].partition("\n## ")[0]
    items = [item.split() for item in section.split("\n- ")[1:]]
    assert tuple(" ".join(words) for words in items) == UNREACHED
