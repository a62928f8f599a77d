"""What memory says to a session that starts, and to a prompt: within a time limit, else nothing."""

import _thread
from typing import Any

from strandline.adapters.coding_agents.hook_settings import HookSettings
from strandline.adapters.coding_agents.spool import Spool
from strandline.client.errors import ServiceError, UnavailableError
from strandline.client.quick_requests import needs_full_client, post_quickly
from strandline.client.service_addresses import split_service_url

_PATH = "/api/v1/context"
_SECONDS = {"SessionStart": 3.0, "UserPromptSubmit": 1.5}
_BUDGETS = {"SessionStart": 1500, "UserPromptSubmit": 800}
"""Tokens of what is said."""
_MIN_RELEVANCE = 0.1
"""Below it an event does not speak of the prompt; nothing is said then."""
_MAX_QUERY_CHARS = 2000


def answer_with_context(
    spool: Spool, settings: HookSettings, event: str, prompt: str | None
) -> dict[str, Any]:
    """What the agent is to know, and for the person what is wrong."""
    request: dict[str, Any] = {"participants": settings.readers, "budget": _BUDGETS[event]}
    if event == "UserPromptSubmit":
        # no start of a session needs these
        from strandline.adapters.coding_agents.spoken_texts import take_spoken_text
        from strandline.secret_scrubbing import scrub_secrets

        spoken = take_spoken_text(prompt or "").strip()
        if not spoken:
            return {}
        query = scrub_secrets(spoken[:_MAX_QUERY_CHARS]).text.encode("utf-8", "replace").decode()
        request |= {"query": query, "min_relevance": _MIN_RELEVANCE}
    is_start = event == "SessionStart"
    sentences = [describe_problems(spool)] if is_start else []
    answer: dict[str, Any] = {}
    try:
        if spool.is_service_away:
            raise UnavailableError("Memory was away a moment ago.")
        answer = _fetch_context_in_thread(settings, request, _SECONDS[event])
    except UnavailableError as error:
        spool.note_service_away(is_away=True)
        sentences.append(f"{error.message} What is said is kept on disk and stored later.")
    except ServiceError as error:
        sentences.append(f"memory does not answer: {error}")
    output: dict[str, Any] = {}
    if answer.get("citations") and isinstance(answer.get("text"), str):
        output["hookSpecificOutput"] = {
            "hookEventName": event,
            "additionalContext": answer["text"],
        }
    if is_start and (text := " ".join(filter(None, sentences))):
        output["systemMessage"] = f"Strandline: {text}"
    return output


def describe_problems(spool: Spool) -> str:
    """What keeps messages from being stored, in sentences; empty where nothing does."""
    report = spool.read_report()
    sentences = [str(report["problem"])] if report.get("problem") else []
    if report.get("dropped"):
        sentences.append(f"{report['dropped']} messages waited too long and were dropped.")
    if spool.has_damaged_files():
        sentences.append(
            "Messages that waited are damaged and were not stored: their files are in "
            f"{spool.damaged}. Mend them there and move them to {spool.segments}, or remove them."
        )
    return " ".join(sentences)


def _fetch_context_in_thread(
    settings: HookSettings, request: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """The answer of the service. The question is asked in a thread of its own, because a search for
    a host's name cannot be broken off; by the module below `threading`, which would be imported for
    this alone. Raises ServiceError, and whatever else went wrong there."""
    results: list[dict[str, Any] | Exception] = []
    is_answered = _thread.allocate_lock()
    is_answered.acquire()

    def ask() -> None:
        try:
            results.append(_fetch_context(settings, request, seconds))
        except Exception as error:  # raised below
            results.append(error)
        finally:
            is_answered.release()

    _thread.start_new_thread(ask, ())
    is_answered.acquire(timeout=seconds)
    if not results:
        raise UnavailableError(f"Memory did not answer within {seconds:g} s.")
    if isinstance(results[0], Exception):
        raise results[0]
    return results[0]


def _fetch_context(
    settings: HookSettings, request: dict[str, Any], seconds: float
) -> dict[str, Any]:
    address = split_service_url(settings.url)
    if not needs_full_client(address):
        return post_quickly(
            address,
            settings.key,
            _PATH,
            request,
            connect_seconds=settings.connect_seconds,
            seconds=seconds,
        )
    from strandline.client.clients import Strandline
    from strandline.client.retries import Retry

    retry = Retry(seconds=0)
    with Strandline(settings.url, settings.key, timeout=seconds, retry=retry) as client:
        return client.context(**request).model_dump(mode="json")
