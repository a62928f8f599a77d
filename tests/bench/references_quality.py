"""What an answer from the topic index holds of a question's evidence, beside recall, within the
same number of tokens.

PYTHONPATH=shared:. .venv/bin/python -m tests.bench.references_quality [--locomo FILE]
    [--talks FOLDER]

Every corpus is appended, folded and built through the API. A question is asked of the references
query with `format=text`, and of recall: its hits as lines of the same form, best first, as many as
the budget holds, and its texts alone (`max_tokens`). A token is four bytes of UTF-8.
"""

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from strandline.context.lines import format_weekday_and_date
from strandline.embeddings.local import LocalEmbedder
from strandline.participants import display_name
from tests.bench import recall_corpora
from tests.bench.cost import RememberingEmbedder
from tests.bench.recall_corpora import Corpus
from tests.bench.recall_service import Asking, RecallService, serve

BUDGET = 2000
BYTES_PER_TOKEN = 4
REFERENCES, RECALL, TEXTS = "references", "recall, as lines", "recall, texts alone"
WAYS = (REFERENCES, RECALL, TEXTS)
_MAX_HITS = 100


@dataclass(frozen=True)
class ShownEvents:
    """What one way shows of the events, within the budget."""

    keys: frozenset[str]
    tokens: int


@dataclass(frozen=True)
class Row:
    """A question, and what each way shows for it."""

    asking: Asking
    shown: Mapping[str, ShownEvents]

    def recall(self, way: str) -> float:
        """The share of the evidence that is shown."""
        evidence = self.asking.evidence
        return len(evidence & self.shown[way].keys) / len(evidence)


def measure(service: RecallService, corpora: Sequence[Corpus]) -> dict[str, Any]:
    """Build every corpus, and ask its questions that something answers."""
    for corpus in corpora:
        service.build(corpus)
    askings = [
        Asking(question, corpus, corpus, question.participants)
        for corpus in corpora
        for question in corpus.questions
        if question.evidence
    ]
    return summarize([ask(service, asking) for asking in askings])


def ask(service: RecallService, asking: Asking) -> Row:
    """Ask a question in every way."""
    answer = service.references(asking, budget=BUDGET, min_relevance=0, format="text")
    hits = service.recall(asking, min_relevance=0, limit=_MAX_HITS)["hits"]
    texts = service.recall(asking, min_relevance=0, limit=_MAX_HITS, max_tokens=BUDGET)["hits"]
    keys = service.event_keys
    return Row(
        asking,
        {
            REFERENCES: ShownEvents(
                frozenset(keys[citation["event_id"]] for citation in answer["citations"]),
                answer["tokens"],
            ),
            RECALL: fit_lines(service, hits),
            TEXTS: ShownEvents(
                frozenset(keys[hit["event_id"]] for hit in texts),
                count_tokens("".join(map(_text, texts))),
            ),
        },
    )


def fit_lines(service: RecallService, hits: Sequence[Mapping[str, Any]]) -> ShownEvents:
    """The hits whose lines fit into the budget, the best first."""
    text, lines = "", set[str]()
    for hit in hits:
        name = display_name(hit["speaker"]) if hit["speaker"] else "user"
        line = f"[{len(lines) + 1}] {_date(hit)}, {name}: {_text(hit)}\n"
        if count_tokens(text + line) > BUDGET:
            break
        text += line
        lines.add(service.event_keys[hit["event_id"]])
    return ShownEvents(frozenset(lines), count_tokens(text))


def _text(hit: Mapping[str, Any]) -> str:
    """What a hit shows; of a payload its file name."""
    return hit["text"] or hit["name"] or ""


def _date(hit: Mapping[str, Any]) -> str:
    return format_weekday_and_date(datetime.fromisoformat(hit["occurred_at"]))


def count_tokens(text: str) -> int:
    """The tokens of a text, as the service counts them."""
    return math.ceil(len(text.encode()) / BYTES_PER_TOKEN)


# tables -------------------------------------------------------------------------------------------


def summarize(rows: Sequence[Row]) -> dict[str, Any]:
    """The means by group of corpora, and by kind of question within each."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        home = row.asking.home
        groups[home.group].append(row)
        groups[f"{home.group}: {row.asking.question.kind}"].append(row)
    return {name: _summarize_group(groups[name]) for name in sorted(groups)}


def _summarize_group(rows: Sequence[Row]) -> dict[str, Any]:
    differences = [row.recall(REFERENCES) - row.recall(RECALL) for row in rows]
    return {
        "questions": len(rows),
        "more": sum(difference > 0 for difference in differences),
        "fewer": sum(difference < 0 for difference in differences),
        **{
            way: {
                "recall": round(fmean(row.recall(way) for row in rows), 4),
                "complete": round(fmean(row.recall(way) == 1 for row in rows), 4),
                "events": round(fmean(len(row.shown[way].keys) for row in rows), 1),
                "tokens": round(fmean(row.shown[way].tokens for row in rows)),
            }
            for way in WAYS
        },
    }


def table(result: Mapping[str, Any]) -> list[str]:
    """Lines of Markdown, a group or kind each."""
    lines = [
        f"| evidence within {BUDGET:,} tokens: recall (events shown) | questions | "
        f"{' | '.join(WAYS)} | more / fewer than recall |",
        "|---" * (len(WAYS) + 3) + "|",
    ]
    for name, results in result.items():
        texts = (f"{results[way]['recall']:.3f} ({results[way]['events']:.0f})" for way in WAYS)
        lines.append(
            f"| {name} | {results['questions']} | {' | '.join(texts)} "
            f"| {results['more']} / {results['fewer']} |"
        )
    return lines


def main(arguments: Iterable[str] | None = None) -> None:
    """Measure, print the table, write build/references.json."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.references_quality")
    parser.add_argument("--locomo", type=Path, help="LoCoMo's file, which is not shipped")
    parser.add_argument("--talks", type=Path, help="a folder of further sets")
    parser.add_argument("--only", nargs="*", metavar="GROUP", help="only these groups of corpora")
    parser.add_argument("--out", type=Path, default=Path("build/references.json"))
    options = parser.parse_args(None if arguments is None else list(arguments))
    try:
        corpora = recall_corpora.load(options.locomo, options.talks)
    except (OSError, KeyError, ValueError) as error:
        sys.exit(f"bench references: {error}")
    corpora = [corpus for corpus in corpora if not options.only or corpus.group in options.only]
    with serve(corpora, RememberingEmbedder(LocalEmbedder())) as service:
        figures = measure(service, corpora)
    for line in table(figures):
        print(line)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
