"""How a model is asked until its answer can be used: in simpler ways, once more, or not at all."""

import math
import time
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from strandline.config import Settings
from strandline.errors import (
    FormatRefused,
    ModelLate,
    ModelRefused,
    ModelUnavailable,
    ModelUnusable,
    StrandlineError,
)
from strandline.llm import parsing, prompts
from strandline.llm.budget import Meter, Outcome, Refusal, Refused
from strandline.llm.parsing import Unfit
from strandline.llm.prompts import Shown, Verb
from strandline.llm.provider import Asked, Provider, Reply
from strandline.llm.types import Task

type Failure = Literal["late", "refused", "invalid_output", "unavailable"]
type FellBack = Refusal | Failure | Literal["out_of_time"]

_LEAST_SECONDS = 0.5
"""With less time left a model is not asked."""
_TOKEN_CHARACTERS = 3
"""Of text a token stands for, where a provider does not count: about 4 in English, so that costs
are rather told too high."""
_WAITS_LONGER = frozenset({"summarise", "merge"})
_NOT_BILLED = frozenset({"format_refused", "unavailable"})


class Fallen(Exception):
    """The model gave no answer of use, or was not asked; says why."""

    def __init__(self, reason: FellBack, again_in: float | None = None) -> None:
        super().__init__(reason)
        self.reason: FellBack = reason
        self.again_in = again_in
        """Seconds after which it would be asked, where waiting helps."""


@dataclass
class _Question:
    """One task under way."""

    task: Task
    verb: Verb
    prompt: str
    asked: Asked
    shown: Shown
    way: str
    sure: bool
    """The model took this way before."""


class Asking:
    """Asks a provider within what the meter allows. Threads share it."""

    def __init__(self, provider: Provider, meter: Meter, settings: Settings) -> None:
        self._provider = provider
        self._meter = meter
        self._settings = settings

    def ask[Value: BaseModel](
        self, task: Task, verb: Verb, result: type[Value], data: Shown, counted: Counter[str]
    ) -> Value:
        """The model's answer; its requests are added to `counted`, by their names in METRICS.

        What is no answer of use counts towards leaving the provider alone, but for a refusal, which
        is about the text. Raises Fallen, and Unavailable where the database is away.
        """
        try:
            way = self._meter.begin(task)
        except Refused as refused:
            raise Fallen(refused.reason, refused.again_in) from None
        prompt = prompts.prompt(verb)
        schema = parsing.schema(result)
        asked = Asked(verb, prompt.text, data.quoted, schema, self._settings.llm_max_tokens)
        question = _Question(
            task, verb, prompt.name, asked, data, way or self._provider.way, way is not None
        )
        value = self._until_fit(question, result, counted)
        self._meter.answered(task, question.way)
        return value

    def _until_fit[Value: BaseModel](
        self, question: _Question, result: type[Value], counted: Counter[str]
    ) -> Value:
        while True:
            try:
                return self._once(question, result, counted)
            except FormatRefused as refused:
                question.way, question.sure = refused.simpler, False
            except Unfit as unfit:
                if question.asked.fault:
                    self._meter.failed(question.task)
                    raise Fallen("invalid_output") from None
                question.asked = question.asked.again(str(unfit))

    def _once[Value: BaseModel](
        self, question: _Question, result: type[Value], counted: Counter[str]
    ) -> Value:
        """One request. Raises FormatRefused and Unfit, after which there may be another; Fallen."""
        full = self._full_seconds(question.verb)
        seconds = min(full, _seconds_left(question.task))
        if seconds < _LEAST_SECONDS:
            raise Fallen("out_of_time", 0.0)
        try:
            with self._meter.spend(question.task, _tokens(question.asked)):
                return self._requested(question, result, seconds, counted)
        except Refused as refused:
            raise Fallen(refused.reason, refused.again_in) from None
        except FormatRefused:
            raise
        except (ModelRefused, ModelUnavailable, ModelUnusable) as error:
            # A refusal is about the text, and who had less than its time is not to blame.
            if isinstance(error, ModelLate) and seconds < full:
                raise Fallen("out_of_time", 0.0) from None
            if not isinstance(error, ModelRefused):
                self._meter.failed(question.task)
            raise Fallen(_reason(error)) from None

    def _requested[Value: BaseModel](
        self, question: _Question, result: type[Value], seconds: float, counted: Counter[str]
    ) -> Value:
        """One request and its answer, taken into the ledger whatever comes of it."""
        started = time.monotonic()
        reply: Reply | None = None
        outcome: Outcome = "unavailable"
        try:
            reply = self._provider.ask(
                question.asked, question.way, sure=question.sure, seconds=seconds
            )
            outcome = "invalid_output"
            value = parsing.parse(reply.text, result, question.shown.text)
            outcome = "ok"
            return value
        except StrandlineError as error:
            outcome = "format_refused" if isinstance(error, FormatRefused) else _reason(error)
            raise
        finally:
            self._note(question, outcome, reply, time.monotonic() - started, counted)

    def _note(
        self,
        question: _Question,
        outcome: Outcome,
        reply: Reply | None,
        seconds: float,
        counted: Counter[str],
    ) -> None:
        """What a request took: as the provider says, or else about as much as it was shown."""
        read, written = (reply.tokens_in, reply.tokens_out) if reply else (None, None)
        if read is None:
            read = 0 if outcome in _NOT_BILLED else _tokens(question.asked)
        if written is None:
            written = len(reply.text) // _TOKEN_CHARACTERS if reply else 0
        self._meter.record(
            question.task,
            verb=question.verb,
            prompt=question.prompt,
            outcome=outcome,
            tokens_in=read,
            tokens_out=written,
            seconds=seconds,
        )
        counted["ModelCalls"] += 1
        counted["ModelFailures"] += outcome != "ok"
        counted["ModelTokensIn"] += read
        counted["ModelTokensOut"] += written
        counted["ModelMicroUsd"] += round(1e6 * self._meter.cost(read, written))

    def _full_seconds(self, verb: Verb) -> float:
        longer = verb in _WAITS_LONGER
        return self._settings.llm_summary_seconds if longer else self._settings.llm_seconds


def _reason(error: StrandlineError) -> Failure:
    match error:
        case ModelLate():
            return "late"
        case ModelUnavailable():
            return "unavailable"
        case ModelRefused():
            return "refused"
        case _:
            return "invalid_output"


def _seconds_left(task: Task) -> float:
    return math.inf if task.deadline is None else task.deadline - time.monotonic()


def _tokens(asked: Asked) -> int:
    return asked.characters // _TOKEN_CHARACTERS
