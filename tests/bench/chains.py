"""Chains: how well topics and names are found, how fast runs are formed, and how often and with how
much text a language model would be asked.

PYTHONPATH=shared:. .venv/bin/python -m tests.bench.chains [--locomo FILE] [TALK ...]
"""

import argparse
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from strandline.background.calibrate_space import measure_space
from strandline.chains import quality
from strandline.config import get_settings
from strandline.embeddings.embedder import Embedder
from strandline.embeddings.local import LocalEmbedder
from strandline.embeddings.similarity_thresholds import thresholds_for
from strandline.llm.heuristic.model import HeuristicModel
from strandline.llm.provider import ModelReply, ModelRequest
from strandline.llm.tasks import LlmTasks
from strandline.llm.types import PromptEvent, RunSummary
from strandline.tuning import DEFAULTS
from tests.bench import locomo, scores, talks
from tests.bench.locomo import Conversation
from tests.bench.scores import Score
from tests.bench.strandline_system import Strandline
from tests.bench.talks import Talk

MODES: Sequence[quality.Mode] = ("strict", "balanced", "permissive")
CHARACTERS_PER_TOKEN = 4
"""Of English prose, by rule of thumb: no tokenizer is asked."""


_NONE = Score(0, 0, 0)


@dataclass
class Measures:
    """What the fold made of some conversations."""

    boundaries: Score = _NONE
    entities: Score = _NONE
    runs: int = 0
    rejected: Counter[str] = field(default_factory=Counter[str])
    """By the gate's mode."""

    def figures(self) -> dict[str, float]:
        """As they are kept."""
        return {
            "chains": self.runs,
            "boundary_f1": self.boundaries.f1,
            "boundary_precision": self.boundaries.precision,
            "boundary_recall": self.boundaries.recall,
            **({"entity_f1": self.entities.f1} if self.entities.expected else {}),
            **{f"rejected_{mode}": self.rejected[mode] / max(1, self.runs) for mode in MODES},
        }


def measure(embedder: Embedder, corpus: Sequence[Talk]) -> Measures:
    """Boundaries and entities against what is expected, and the share that each gate rejects."""
    cuts = thresholds_for(embedder.space, measure_space(embedder), DEFAULTS)
    total = Measures()
    for talk in corpus:
        vectors = talks.vectors(embedder, talk)
        fold = talks.fold(talk, vectors, cuts)
        chains = talks.chains_of(fold)
        total.boundaries = _sum(total.boundaries, scores.boundaries(talk.expected, chains))
        if talk.expected.names:
            total.entities = _sum(total.entities, scores.entities(talk.expected, chains))
        for run in fold.runs:
            total.runs += 1
            total.rejected.update(_rejecting(run, vectors))
    return total


def _sum(one: Score, other: Score) -> Score:
    return Score(*map(sum, zip(one, other, strict=True)))


def _rejecting(run: Sequence[talks.Event], vectors: Mapping[int, list[float]]) -> Iterator[str]:
    summary = HeuristicModel().summarise([event.prompt for event in run])
    density = quality.compute_density([event.trait for event in run])
    coherence = quality.compute_coherence([vectors[event.turn.seq] for event in run])
    for mode in MODES:
        judgement = quality.judge_quality(
            mode,
            density=density,
            coherence=coherence,
            importance=summary.importance,
            events=len(run),
        )
        if judgement.rejection_reason:
            yield mode


def of_quality(embedder: Embedder, paths: Sequence[Path]) -> dict[str, dict[str, float]]:
    """Each talk's figures, by its name."""
    return {path.stem: measure(embedder, [talks.read(path)]).figures() for path in paths}


def of_locomo(
    embedder: Embedder, conversations: Sequence[Conversation]
) -> dict[str, dict[str, float]]:
    """LoCoMo's session starts as boundaries, without lanes and gaps that would give them away; and
    its chains, each session a lane, as the service has them."""
    results: dict[str, dict[str, float]] = {}
    for name, one_lane in (("locomo", False), ("locomo_in_one_lane", True)):
        corpus = [talks.of_locomo(one, one_lane=one_lane) for one in conversations]
        figures = measure(embedder, corpus).figures()
        keep = ("chains", "boundary") if one_lane else ("chains", "rejected")
        results[name] = {key: value for key, value in figures.items() if key.startswith(keep)}
    return results


def of_forming(
    system: Strandline, conversations: Sequence[Conversation], model: "Counting | None" = None
) -> dict[str, float]:
    """The real worker on LoCoMo, each conversation a tenant's: events a second from their storing
    to their chains. The events' vectors are known before; those of summaries are not. With `model`
    what it was asked, for each 1,000 events."""
    for conversation in conversations:
        system.store(conversation, system.gateway.key(conversation.name.lower()))
    began = time.monotonic()
    system.embed()
    seconds = time.monotonic() - began
    events = sum(len(conversation.turns) for conversation in conversations)
    rows = system.base.rows("select status, count(*) from chains group by status")
    figures = {
        "events": float(events),
        "events_per_second": events / seconds,
        **{f"{status}_chains": float(count) for status, count in rows},
    }
    if model is None:
        return figures
    per_thousand = {
        "model_calls": sum(model.calls.values()),
        **{f"model_calls_{task}": count for task, count in sorted(model.calls.items())},
        "model_tokens_in": model.characters_in / CHARACTERS_PER_TOKEN,
        "model_tokens_out": model.characters_out / CHARACTERS_PER_TOKEN,
    }
    thousands = events / 1000
    return figures | {f"{key}_per_1000": value / thousands for key, value in per_thousand.items()}


class Counting:
    """A provider that answers as the heuristic model would, and counts what it is sent and sends: a
    model cannot be had here, what it would be asked can."""

    name = "counting"
    output_mode = "json_schema"

    def __init__(self) -> None:
        self.calls = Counter[str]()
        self.characters_in = self.characters_out = 0
        self._lock = threading.Lock()

    def ask(
        self, request: ModelRequest, mode: str, *, is_proven: bool, timeout: float
    ) -> ModelReply:
        """The heuristic model's answer to what the quoted events say."""
        text = answer(request)
        with self._lock:
            self.calls[request.task] += 1
            self.characters_in += request.character_count
            self.characters_out += len(text)
        tokens = request.character_count // CHARACTERS_PER_TOKEN, len(text) // CHARACTERS_PER_TOKEN
        return ModelReply(text, *tokens)


def answer(request: ModelRequest) -> str:
    """What the heuristic model says to a model's question, read from its quoted data."""
    documents = [json.loads(line) for line in request.data.splitlines() if line.startswith("{")]
    heuristic = HeuristicModel()
    if request.task == "merge":
        earlier, later = (RunSummary.model_validate(one) for one in documents)
        return heuristic.merge(earlier, later).model_dump_json()
    messages = [_prompt_event(place, one) for place, one in enumerate(documents) if "text" in one]
    if request.task == "continues":
        tags = [line for line in request.data.splitlines() if line.startswith(("<", "{"))]
        earlier = sum(line[0] == "{" for line in tags[: tags.index("<message>")])
        return heuristic.continues(
            messages[:earlier], messages[earlier], messages[earlier + 1 :]
        ).model_dump_json()
    verbs = {
        "summarise": heuristic.summarise,
        "topic": heuristic.topic,
        "entities": heuristic.entities,
    }
    return verbs[request.task](messages).model_dump_json()


def _prompt_event(place: int, quotes: Mapping[str, Any]) -> PromptEvent:
    at = datetime.fromisoformat(quotes["at"])
    return PromptEvent(place, quotes["speaker"], quotes["role"], quotes["type"], quotes["text"], at)


def ask_instead(system: Strandline, model: Counting) -> None:
    """Let the worker ask a model where it would go by the heuristic model alone, at any rate."""
    unlimited = get_settings().model_copy(update={"llm_calls_per_minute": 100_000})
    for service in system.services:
        service.__dict__["llm"] = LlmTasks(service.database, unlimited, model)


def table(quality: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Lines of Markdown: a row for each corpus."""
    text = " | ".join(f"{mode} rejects" for mode in MODES)
    yield f"| corpus | chains | boundary F1 | precision | recall | entity F1 | {text} |"
    yield "|---" * 9 + "|"
    columns = ("boundary_f1", "boundary_precision", "boundary_recall", "entity_f1")
    for corpus, result in quality.items():
        cells = [_cell(result.get(column), ".3f") for column in columns]
        cells += [_cell(result.get(f"rejected_{mode}"), ".1%") for mode in MODES]
        yield f"| {corpus} | {result['chains']:,.0f} | {' | '.join(cells)} |"


def _cell(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def lines(results: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Lines of Markdown: the table, then what forming took."""
    if not results:
        return
    corpora = {name: figures for name, figures in results.items() if "chains" in figures}
    yield from table(corpora)
    for name in [name for name in results if name not in corpora]:
        yield ""
        yield f"{name}: " + ", ".join(f"{key} {value:,.1f}" for key, value in results[name].items())


def main() -> None:
    """Print the quality of the talks that are named, by default those that ship."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.chains", description=__doc__)
    defaults = [*talks.FITTING_SET, *talks.UNSEEN_SET]
    parser.add_argument("talks", nargs="*", type=Path, default=defaults, metavar="TALK")
    parser.add_argument("--locomo", type=Path, metavar="FILE")
    options = parser.parse_args()
    embedder = LocalEmbedder()
    result = of_quality(embedder, options.talks)
    if options.locomo:
        result |= of_locomo(embedder, locomo.load(options.locomo))
    for line in table(result):
        print(line)


if __name__ == "__main__":
    main()
