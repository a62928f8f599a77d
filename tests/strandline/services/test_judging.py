"""When topics are judged: a few events later, at a silence, or at once; whoever dies meanwhile."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from strandline.blobs import Blobs
from strandline.db import Asker, Database
from strandline.local.aws import LocalAws
from strandline.models.language import Continues, Done, Said, Task
from strandline.services import folding
from strandline.services.form_chains import close_idle, drop
from strandline.services.worker import Worker
from tests.strandline.services.folds import Plain, hashes, tune
from tests.strandline.services.stand_ins import WordEmbedder, embed_due, work_for
from tests.strandline.services.test_form_chains import BREAD, HARBOUR, NOW, Log, fold
from tests.support import Base, Gateway

STARS, TAXES = "telescope nebula lens mirror", "tax invoice ledger audit"


@pytest.fixture
def worker(base: Base, aws: LocalAws) -> Iterator[Worker]:
    """With a minute to work."""
    database = Database(base.url)
    yield work_for(database, Blobs(aws.bucket), WordEmbedder("words/64", 64), Plain())
    database.close()


@pytest.fixture
def log(gateway: Gateway, base: Base) -> Log:
    """An empty log, whose every message is asked about."""
    return Log(gateway, base)


class Ahead(Plain):
    """A model that says what it was shown: yes where what comes after speaks of bread."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[tuple[list[int], int, list[int]]] = []

    def continues(
        self, task: Task, before: Sequence[Said], message: Said, after: Sequence[Said]
    ) -> Done[Continues]:
        """Yes, if so."""
        seqs = [one.seq for one in before], message.seq, [one.seq for one in after]
        self.shown.append(seqs)
        return self._done("continues", Continues(continues="bread" in str(after)))


def asked_ahead(worker: Worker) -> tuple[Worker, Ahead]:
    model = Ahead()
    return replace(worker, reasoner=model), model


def test_a_message_is_judged_by_what_comes_after_it(worker: Worker, log: Log) -> None:
    tune(log.base, similarity_low=-1, similarity_high=1, ahead_events=2)
    worker, model = asked_ahead(worker)
    for text in (HARBOUR, BREAD, "on with bread", HARBOUR):
        log.say(text)
        embed_due(worker)
    assert model.shown == [([1], 2, [3, 4])]
    log.say(HARBOUR)
    embed_due(worker)
    log.say(HARBOUR)
    embed_due(worker)
    assert model.shown[1:] == [([1, 2], 3, [4, 5]), ([3], 4, [5, 6])]
    assert log.chains() == [("break", [1, 2]), ("break", [3])]
    assert log.decided("continues") == [
        ("continues", 2, 4),
        ("continues", 3, 5),
        ("continues", 4, 6),
    ]


def test_a_silence_ends_the_waiting(worker: Worker, log: Log) -> None:
    tune(log.base, similarity_low=-1, similarity_high=1, ahead_events=2)
    worker, model = asked_ahead(worker)
    for text in (HARBOUR, BREAD, STARS):
        log.say(text)
    log.say(TAXES, minutes=31)
    embed_due(worker)
    assert model.shown == [([1], 2, [3]), ([2], 3, [])]
    assert log.chains() == [("break", [1]), ("break", [2]), ("gap", [3])]


@pytest.mark.parametrize("deaths", range(6))
def test_an_idle_lane_is_judged_to_its_end_whoever_dies_meanwhile(
    worker: Worker, log: Log, deaths: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last messages close several runs, each in a commit of its own; a replay does the same."""
    tune(log.base, similarity_low=-1, similarity_high=1, ahead_events=3)
    worker, _ = asked_ahead(worker)
    for text in (HARBOUR, BREAD, STARS, TAXES):
        log.say(text)
    embed_due(worker)
    assert log.chains() == []
    commit, made = folding.Fold.commit, 0

    def dying(self: folding.Fold, *given: Any, **more: Any) -> None:
        nonlocal made
        made += 1
        if made == deaths:
            raise ZeroDivisionError
        commit(self, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(folding.Fold, "commit", dying)
        close_idle(worker, "acme", NOW)
    close_idle(worker, "acme", NOW)
    expected = [("break", [1]), ("break", [2]), ("break", [3]), ("idle", [4])]
    assert log.chains() == expected
    before = hashes(log.base)
    other, model = asked_ahead(worker)
    access = worker.database.access(Asker.background("acme"))
    tune(log.base, ahead_events=0)
    drop(access, [log.scope])
    fold(other, log, NOW)
    assert log.chains() == expected
    assert hashes(log.base) == before
    assert model.shown == []


def test_who_judges_at_once_from_now_on_judges_what_waited(worker: Worker, log: Log) -> None:
    tune(log.base, similarity_low=-1, similarity_high=1, ahead_events=3)
    worker, model = asked_ahead(worker)
    for text in (HARBOUR, BREAD, STARS):
        log.say(text)
    embed_due(worker)
    assert model.shown == []
    tune(log.base, similarity_low=-1, similarity_high=1, ahead_events=0)
    log.say(TAXES)
    embed_due(worker)
    assert log.chains() == [("break", [1]), ("break", [2]), ("break", [3])]
    assert [message for _, message, _ in model.shown] == [2, 3, 4]
    tune(log.base, similarity_low=-1, similarity_high=1, ahead_events=3)
    log.say(HARBOUR)
    embed_due(worker)
    assert [message for _, message, _ in model.shown] == [2, 3, 4], "once each"
    before = hashes(log.base)
    drop(worker.database.access(Asker.background("acme")), [log.scope])
    fold(worker, log)
    assert hashes(log.base) == before
