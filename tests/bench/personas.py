"""What the weight of a sona gains and loses, where one user speaks in two roles.

PYTHONPATH=shared:. .venv/bin/python -m tests.bench.personas

Two conversations of people with an agent are told by one user to one agent, each in a sona of its
own; every question is asked in its conversation's sona, and in the other one's by mistake. Once the
sona was active in all of its conversation's events, once in those of every other session alone: of
the others their nearness to its place tells.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from strandline.embeddings.local import LocalEmbedder
from tests.bench import recall_corpora
from tests.bench.cost import RememberingEmbedder
from tests.bench.recall_corpora import Corpus
from tests.bench.recall_service import Asking, RecallService, serve

WHO = ("agent:helper", "user:one")
WEIGHTS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5)
_NAMES = {
    True: ("Accountant", "Dungeon master"),
    False: ("Lighthouse keeper", "Gardener"),
}
"""Of the sonas, in all sessions or in every other one: so far apart that each is its own."""
_DEPTH = 10
_EVENTS_PER_CALL = 500


@dataclass(frozen=True)
class Role:
    """A conversation as one of two roles of a user."""

    name: str
    events: Sequence[Mapping[str, Any]]


def merge(first: Corpus, second: Corpus) -> tuple[Corpus, list[Role]]:
    """One corpus of one user and one agent, and its two roles."""
    roles = [_as_role(corpus) for corpus in (first, second)]
    questions = [
        replace(
            question,
            evidence=frozenset(f"{corpus.name} {key}" for key in question.evidence),
            participants=WHO,
            kind=corpus.name,
        )
        for corpus in (first, second)
        for question in corpus.questions
        if question.evidence
    ]
    events = sorted(
        itertools.chain(*(role.events for role in roles)), key=lambda event: event["occurred_at"]
    )
    return Corpus(f"{first.name}-{second.name}"[:60], "roles", events, questions), roles


def _as_role(corpus: Corpus) -> Role:
    events = [
        {
            **event,
            "source_event_key": f"{corpus.name} {event['source_event_key']}",
            "session_id": f"{corpus.name} {event.get('session_id', '')}",
            "participants": WHO,
            "speaker": WHO[0] if event["role"] in ("agent", "assistant") else WHO[1],
        }
        for event in corpus.events
        if event["role"] != "system"
    ]
    return Role(corpus.name, events)


def activate(
    service: RecallService, corpus: Corpus, role: Role, name: str, *, all_sessions: bool
) -> str:
    """Make a role's sona active in its events; gives the sona's id."""
    call, key = service.system.gateway.call, service.keys[corpus.name]
    uuid = call("POST", "/api/v1/sonas", {"name": name}, key=key).body["uuid"]
    sessions = list(dict.fromkeys(event["session_id"] for event in role.events))
    session_set = set(sessions if all_sessions else sessions[::2])
    active = {
        event["source_event_key"] for event in role.events if event["session_id"] in session_set
    }
    ids = [event_id for event_id, event_key in service.event_keys.items() if event_key in active]
    for some in itertools.batched(ids, _EVENTS_PER_CALL, strict=False):
        body = {"event_ids": list(some)}
        reply = call("POST", f"/api/v1/sonas/{uuid}/memories", body, key=key)
        assert reply.status == 200, reply.text
    return uuid


@dataclass(frozen=True)
class Figure:
    """R@10 and MRR of one question under one weight."""

    recall: float
    rank: float


def figures(
    service: RecallService, corpus: Corpus, sonas: Mapping[str, str], *, own: bool
) -> Iterator[dict[float, Figure]]:
    """Of each question what every weight gives, in its own role's sona or in the other's."""
    for question in corpus.questions:
        asking = Asking(question, corpus, corpus, WHO)
        sona = next(uuid for name, uuid in sonas.items() if (name == question.kind) == own)
        results: dict[float, Figure] = {}
        for weight in WEIGHTS:
            weights = {"sona": weight}
            answer = service.recall(asking, min_relevance=0, sona=sona, weights=weights)
            results[weight] = score(question.evidence, service.hit_keys(answer))
        yield results


def score(evidence: frozenset[str], ranking: Sequence[str]) -> Figure:
    """Score the keys that recall ranks, best first."""
    places = sorted(ranking.index(key) for key in evidence if key in ranking)
    recall = sum(place < _DEPTH for place in places) / len(evidence)
    return Figure(recall, 1 / (1 + places[0]) if places else 0.0)


def summarize(
    groups: Mapping[str, Sequence[Mapping[float, Figure]]],
) -> dict[str, dict[str, dict[str, float]]]:
    """By group and weight: R@10 and MRR."""
    return {
        group: {
            f"{weight:g}": {
                "R@10": round(fmean(row[weight].recall for row in rows), 6),
                "MRR": round(fmean(row[weight].rank for row in rows), 6),
            }
            for weight in WEIGHTS
        }
        for group, rows in groups.items()
    }


def table(result: Mapping[str, Any]) -> list[str]:
    """Lines of Markdown: the order without a weight, and what each weight adds to it."""
    groups: Mapping[str, Mapping[str, Mapping[str, float]]] = result["groups"]
    lines = [
        f"A sona's weight, {result['questions']} questions, {result['roles']}:",
        "",
        f"| R@10 / MRR | {' | '.join(groups)} |",
        "|---" * (len(groups) + 1) + "|",
    ]
    for weight in (f"{weight:g}" for weight in WEIGHTS):
        parts: list[str] = []
        for by_weight in groups.values():
            base, results = by_weight["0"], by_weight[weight]
            plain = f"{results['R@10']:.3f} / {results['MRR']:.3f}"
            gains = (results[name] - base[name] for name in ("R@10", "MRR"))
            parts.append(plain if weight == "0" else " / ".join(f"{gain:+.3f}" for gain in gains))
        name = "as it is" if weight == "0" else f"weight {weight}"
        lines.append(f"| {name} | {' | '.join(parts)} |")
    return lines


def measure() -> dict[str, Any]:
    """R@10 and MRR over the pairs of neighbouring sets, for each weight."""
    sets = [corpus for corpus in recall_corpora.load(None) if corpus.group == "talks"]
    pairs = [merge(*pair) for pair in itertools.batched(sets, 2, strict=True)]
    groups: dict[str, list[dict[float, Figure]]] = {}
    with serve([corpus for corpus, _ in pairs], RememberingEmbedder(LocalEmbedder())) as service:
        for corpus, roles in pairs:
            for all_sessions in (True, False):
                scope_text = "all events" if all_sessions else "every other session"
                sonas = {
                    role.name: activate(service, corpus, role, name, all_sessions=all_sessions)
                    for role, name in zip(roles, _NAMES[all_sessions], strict=True)
                }
                for own in (True, False):
                    group = f"{'own' if own else 'other'} sona, {scope_text}"
                    rows = figures(service, corpus, sonas, own=own)
                    groups.setdefault(group, []).extend(rows)
    return {
        "roles": "pairs of unrelated conversations, each told as one of two roles of a user",
        "pairs": [[role.name for role in roles] for _, roles in pairs],
        "messages": sum(len(corpus.events) for corpus, _ in pairs),
        "questions": sum(len(corpus.questions) for corpus, _ in pairs),
        "groups": summarize(groups),
    }


def main() -> None:
    """Measure and print the table."""
    print(*table(measure()), sep="\n")


if __name__ == "__main__":
    main()
