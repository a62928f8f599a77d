"""Call a model until its answer is usable: with simpler output modes, with one correction, or not
at all."""

import math
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import BaseModel

from strandline.config import ServiceSettings
from strandline.errors import (
    InvalidModelAnswer,
    ModelFormatUnsupported,
    ModelMisconfigured,
    ModelRateLimited,
    ModelRefused,
    ModelRequestRefused,
    ModelTimeout,
    ModelUnavailable,
    StrandlineError,
)
from strandline.llm import parsing, prompts
from strandline.llm.budget import LlmBudget, Outcome
from strandline.llm.call_denials import CallDenied, DenialReason
from strandline.llm.parsing import UnusableOutput
from strandline.llm.prompts import PromptData, TaskName
from strandline.llm.provider import ModelProvider, ModelReply, ModelRequest
from strandline.llm.store_calls import FailedAnswer
from strandline.llm.types import TaskContext

type ModelFailure = Literal["late", "refused", "invalid_output", "unavailable", "misconfigured"]
type FallbackReason = DenialReason | ModelFailure | Literal["out_of_time"]

_MIN_SECONDS = 0.5
"""With less time left than this, in seconds, no model is called."""
CHARACTERS_PER_TOKEN = 3
"""Characters per token, where a provider does not count tokens: about 4 in English, so that costs
are rather overestimated."""
_LONG_TASKS = frozenset({"summarise", "merge", "overview", "extract"})
_ANSWER_TASKS = frozenset({"answer", "reply"})
_ANSWER_SECONDS = 60.0
"""How long an answer is waited for, in seconds, where its caller has the time: such an answer has
no fallback."""
_UNBILLED_OUTCOMES = frozenset({"format_refused", "unavailable", "misconfigured"})
_YES_NO_TASKS = frozenset({"continues", "contradicts"})
_YES_NO_TOKENS = 10
"""The most tokens of an answer that is yes or no, where the provider takes such a limit."""
_LONG_YES_NO = " long"
"""Ends the output mode of a model that needs more for yes or no, such as one that thinks first."""
_UNUSABLE_TEXT = (
    "The language model's answers are not what its tasks ask for: use one that keeps to a JSON"
    " Schema (STRANDLINE_LLM_MODEL)."
)
_CUT_TEXT = (
    "The language model's answers are cut off before they end: raise STRANDLINE_LLM_MAX_TOKENS, or"
    " use a model that thinks less (STRANDLINE_LLM_MODEL)."
)


class Fallback(Exception):
    """The model gave no usable answer, or was not called; `reason` says why."""

    def __init__(
        self,
        reason: FallbackReason,
        retry_after: float | None = None,
        text: str = "",
        tried_again_in: float | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason: FallbackReason = reason
        self.retry_after = retry_after
        """Seconds after which the model may be called; None where waiting does not help."""
        self.text = text
        """What happened, in sentences for the caller without text of the provider; may be empty."""
        self.tried_again_in = tried_again_in
        """Seconds after which a model that is paused is tried again; None if it is not."""

    @classmethod
    def from_denial(cls, denial: CallDenied) -> "Fallback":
        """Of a call that may not be made."""
        return cls(denial.reason, denial.retry_after, denial.text, denial.tried_again_in)


@dataclass
class _PendingRequest:
    """One task in progress."""

    task: TaskContext
    verb: TaskName
    prompt: str
    request: ModelRequest
    data: PromptData
    output_mode: str
    is_proven: bool
    """The model has accepted this output mode before."""

    @property
    def provider_mode(self) -> str:
        """The output mode as the provider knows it."""
        return self.output_mode.removesuffix(_LONG_YES_NO)

    def set_simpler_mode(self, mode: str) -> None:
        """Ask in another output mode, which the provider has named."""
        suffix = _LONG_YES_NO if self.output_mode.endswith(_LONG_YES_NO) else ""
        self.output_mode, self.is_proven = mode + suffix, False

    def lift_yes_no_token_limit(self, max_tokens: int) -> None:
        """Ask without the low limit of yes or no."""
        self.request = replace(self.request, max_tokens=max_tokens)
        self.output_mode = self.provider_mode + _LONG_YES_NO


class _CutOutput(UnusableOutput):
    """An answer that ends at the limit of its length."""


class _AnswerCut(Exception):
    """The answer ends at the low limit of yes or no."""


class LlmClient:
    """Calls a provider within the tenant's limits. Threads share it."""

    def __init__(
        self, provider: ModelProvider, meter: LlmBudget, settings: ServiceSettings
    ) -> None:
        self._provider = provider
        self._meter = meter
        self._settings = settings

    def ask[Value: BaseModel](
        self,
        task: TaskContext,
        verb: TaskName,
        result_type: type[Value],
        data: PromptData,
        counters: Counter[str],
    ) -> Value:
        """Return the model's answer; metrics of the requests are added to `counters`, by their
        names in METRICS.

        Each unusable answer counts towards opening the breaker, except a refusal, which is about
        the text. Raises Fallback, and Unavailable where the database is unavailable.
        """
        try:
            output_mode = self._meter.require_closed_breaker(task)
        except CallDenied as denial:
            raise Fallback.from_denial(denial) from None
        mode = output_mode or self._provider.output_mode
        prompt = prompts.load_prompt(verb)
        schema = parsing.make_strict_schema(result_type)
        max_tokens = self._settings.llm_max_tokens
        if verb in _YES_NO_TASKS and not mode.endswith(_LONG_YES_NO):
            max_tokens = min(_YES_NO_TOKENS, max_tokens)
        request = ModelRequest(verb, prompt.text, data.json_lines, schema, max_tokens)
        pending = _PendingRequest(
            task,
            verb,
            prompt.name,
            request,
            data,
            mode,
            output_mode is not None,
        )
        value = self._ask_until_valid(pending, result_type, counters)
        self._meter.record_success(task, pending.output_mode)
        return value

    def _ask_until_valid[Value: BaseModel](
        self, pending: _PendingRequest, result_type: type[Value], counters: Counter[str]
    ) -> Value:
        while True:
            try:
                return self._send_once(pending, result_type, counters)
            except ModelFormatUnsupported as error:
                pending.set_simpler_mode(error.simpler_format)
            except _AnswerCut:
                pending.lift_yes_no_token_limit(self._settings.llm_max_tokens)
            except UnusableOutput as invalid_answer:
                if pending.request.fault:
                    is_cut = isinstance(invalid_answer, _CutOutput)
                    text = _CUT_TEXT if is_cut else _UNUSABLE_TEXT
                    self._meter.record_failure(pending.task, FailedAnswer("invalid_output", text))
                    raise Fallback("invalid_output", text=text) from None
                pending.request = pending.request.with_fault(str(invalid_answer))

    def _send_once[Value: BaseModel](
        self, pending: _PendingRequest, result_type: type[Value], counters: Counter[str]
    ) -> Value:
        """Send one request. Raises ModelFormatUnsupported or UnusableOutput, after which another
        request may follow, or Fallback."""
        time_limit = self._get_time_limit_seconds(pending.verb)
        seconds = min(time_limit, _seconds_left(pending.task))
        if seconds < _MIN_SECONDS:
            raise Fallback("out_of_time", 0.0)
        try:
            with self._meter.reserve(pending.task, _estimate_input_tokens(pending.request)):
                return self._call_provider(pending, result_type, seconds, counters)
        except CallDenied as denial:
            raise Fallback.from_denial(denial) from None
        except ModelFormatUnsupported:
            raise
        except (ModelRefused, ModelUnavailable, InvalidModelAnswer) as error:
            # A model with too little time is not to blame.
            if isinstance(error, ModelTimeout) and seconds < time_limit:
                raise Fallback("out_of_time", 0.0) from None
            raise self._record_failure(pending.task, error) from None

    def _record_failure(
        self, task: TaskContext, error: ModelRefused | ModelUnavailable | InvalidModelAnswer
    ) -> Fallback:
        """Record why there is no answer, and return what the caller is told. What the model itself
        refuses is about the text. What the provider refuses may be: it is shown, and opens no
        breaker."""
        kind: FallbackReason = _classify_failure(error)
        retry_after: float | None = None
        if isinstance(error, ModelRateLimited):
            kind, retry_after = "rate_limited", error.seconds_to_wait
        is_refusal = isinstance(error, ModelRefused)
        if not is_refusal or isinstance(error, ModelRequestRefused):
            is_final = isinstance(error, ModelMisconfigured)
            failure = FailedAnswer(kind, error.message, is_final, counts=not is_refusal)
            self._meter.record_failure(task, failure)
        return Fallback(kind, retry_after, error.message)

    def _call_provider[Value: BaseModel](
        self,
        pending: _PendingRequest,
        result_type: type[Value],
        seconds: float,
        counters: Counter[str],
    ) -> Value:
        """Send one request and parse its answer; the call is recorded whatever its outcome."""
        start = time.monotonic()
        reply: ModelReply | None = None
        outcome: Outcome = "unavailable"
        try:
            reply = self._provider.ask(
                pending.request, pending.provider_mode, is_proven=pending.is_proven, timeout=seconds
            )
            outcome = "invalid_output"
            value = self._parse_chat_completion(pending, result_type, reply)
            outcome = "ok"
            return value
        except StrandlineError as error:
            outcome = (
                "format_refused"
                if isinstance(error, ModelFormatUnsupported)
                else _classify_failure(error)
            )
            raise
        finally:
            self._record_call_and_metrics(
                pending, outcome, reply, time.monotonic() - start, counters
            )

    def _parse_chat_completion[Value: BaseModel](
        self, pending: _PendingRequest, result_type: type[Value], reply: ModelReply
    ) -> Value:
        try:
            return parsing.parse_model_output(reply.text, result_type, pending.data.text)
        except UnusableOutput:
            if not reply.is_cut:
                raise
            if pending.request.max_tokens < self._settings.llm_max_tokens:
                raise _AnswerCut from None
            raise _CutOutput("it is longer than it may be, and cut off") from None

    def _record_call_and_metrics(
        self,
        pending: _PendingRequest,
        outcome: Outcome,
        reply: ModelReply | None,
        seconds: float,
        counters: Counter[str],
    ) -> None:
        """Record a request's tokens and cost: as the provider counts them, or else estimated from
        the text."""
        tokens_in, tokens_out = (reply.tokens_in, reply.tokens_out) if reply else (None, None)
        if tokens_in is None:
            tokens_in = (
                0 if outcome in _UNBILLED_OUTCOMES else _estimate_input_tokens(pending.request)
            )
        if tokens_out is None:
            tokens_out = len(reply.text) // CHARACTERS_PER_TOKEN if reply else 0
        self._meter.record_call(
            pending.task,
            verb=pending.verb,
            prompt=pending.prompt,
            outcome=outcome,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            seconds=seconds,
        )
        counters["ModelCalls"] += 1
        counters["ModelFailures"] += outcome != "ok"
        counters["ModelTokensIn"] += tokens_in
        counters["ModelTokensOut"] += tokens_out
        counters["ModelCostMicroUsd"] += round(1e6 * self._meter.cost(tokens_in, tokens_out))

    def _get_time_limit_seconds(self, verb: TaskName) -> float:
        if verb in _ANSWER_TASKS:
            return _ANSWER_SECONDS
        is_long = verb in _LONG_TASKS
        return self._settings.llm_summary_seconds if is_long else self._settings.llm_seconds


def _classify_failure(error: StrandlineError) -> ModelFailure:
    match error:
        case ModelTimeout():
            return "late"
        case ModelMisconfigured():
            return "misconfigured"
        case ModelUnavailable():
            return "unavailable"
        case ModelRefused():
            return "refused"
        case _:
            return "invalid_output"


def _seconds_left(task: TaskContext) -> float:
    return math.inf if task.deadline is None else task.deadline - time.monotonic()


def _estimate_input_tokens(request: ModelRequest) -> int:
    return request.character_count // CHARACTERS_PER_TOKEN
