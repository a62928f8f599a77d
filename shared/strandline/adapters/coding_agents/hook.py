"""`strandline hook`: what happens when Claude Code or Codex calls a hook. Its imports are few: the
agent waits for them each time.

It ends with 0 whatever is sent, set or away, since another code would stop the agent or show an
error at each prompt. What is wrong is said once a session, when it starts.
"""

import json
import os
import sys
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

from strandline.adapters.coding_agents.hook_settings import (
    HookSettings,
    parse_options,
    read_hook_settings,
)
from strandline.adapters.coding_agents.spool import Spool, TranscriptPlace

_STORING = ("Stop", "PreCompact", "SessionEnd", "SubagentStop")
_ASKING = ("SessionStart", "UserPromptSubmit")
_MAX_ID_CHARS = 128
_NICENESS = 5
"""Of the process that stores: the agent goes first."""
FLUSH, PLUGIN = "--flush", "--plugin"
"""The arguments of a person: to store what waits, and to get the folder of the plugin."""


def run_hook(arguments: Sequence[str]) -> int:
    """Run the hook that standard input describes, and print what the agent is to know. The exit
    code, which is 0."""
    if FLUSH in arguments:
        from strandline.adapters.coding_agents.delivery import flush_now

        return flush_now([word for word in arguments if word != FLUSH])
    if PLUGIN in arguments:
        sys.stdout.write(f"{os.path.join(os.path.dirname(__file__), 'plugin')}\n")
        return 0
    output = answer_hook(sys.stdin.buffer.read(), arguments, os.environ)
    if output:
        sys.stdout.write(json.dumps(output))
    sys.stdout.flush()
    return 0


def answer_hook(
    content: bytes, arguments: Sequence[str], environment: Mapping[str, str]
) -> dict[str, Any]:
    """What a hook says for what an agent sent; empty where it says nothing."""
    try:
        value: object = json.loads(content)
    except (ValueError, RecursionError):
        return _say("the hook's input is not JSON: it is for Claude Code and Codex to call")
    payload = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    event = payload.get("hook_event_name")
    if event not in (*_STORING, *_ASKING):
        return {}
    try:
        variables = {**environment, **parse_options(arguments)}
        settings = read_hook_settings(variables, _text_or_none(payload.get("cwd")))
        spool = Spool(settings.folder)
        spool.create()
        _register(spool, settings, payload)
        if event in _STORING or _has_work_from_before(spool, event):
            _start_delivery(spool, settings)
    except (ValueError, OSError) as error:  # settings, or a disk that is full or not ours
        return _say(f"nothing is remembered: {error}") if event == "SessionStart" else {}
    if event in _STORING:
        return {}
    try:
        if event == "UserPromptSubmit" and spool.is_service_away:
            return {}
        from strandline.adapters.coding_agents.questions import answer_with_context

        return answer_with_context(spool, settings, event, _text_or_none(payload.get("prompt")))
    except OSError as error:  # the disk: what is said is remembered all the same
        return _say(f"memory cannot be asked: {error}") if event == "SessionStart" else {}


def _say(sentence: str) -> dict[str, Any]:
    """A sentence for the person, which is not for the model."""
    return {"systemMessage": f"Strandline: {sentence}"}


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _register(spool: Spool, settings: HookSettings, payload: Mapping[str, Any]) -> None:
    """Note the session's transcript: whoever delivers next reads it, also when this process ends
    before it says so."""
    path = _text_or_none(payload.get("transcript_path"))
    session_id = _text_or_none(payload.get("session_id"))
    if path is None or session_id is None:
        return  # a session that is not kept
    path = os.path.abspath(os.path.expanduser(path))
    name = path.encode("utf-8", "replace")
    spool.register_transcript(
        TranscriptPlace(
            f"{zlib.crc32(name):08x}{zlib.adler32(name):08x}.json",
            path,
            session_id[:_MAX_ID_CHARS],
            settings.participants,
            settings.wants_tools,
        )
    )


def _has_work_from_before(spool: Spool, event: str) -> bool:
    """Whether an earlier hook, of this session or another, left what nobody stored. At a prompt
    only what waits counts: transcripts are looked at when a session starts."""
    if spool.is_service_away:
        return False
    return spool.has_work() if event == "SessionStart" else bool(spool.list_segments())


def _start_delivery(spool: Spool, settings: HookSettings) -> None:
    """Start the process that stores, unless one is at work: it looks again before it ends."""
    descriptor = spool.try_lock()
    if descriptor is None:
        return
    os.close(descriptor)
    if os.fork():
        return
    try:  # the new process: the agent waits for no descriptor of it
        os.setsid()
        os.nice(_NICENESS)
        os.chdir(spool.folder)  # a project's own modules are not imported
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        os.execve(  # noqa: S606 - this Python, with arguments of our own
            sys.executable,
            [sys.executable, "-m", "strandline.adapters.coding_agents.delivery", spool.folder],
            {
                **os.environ,
                "STRANDLINE_URL": settings.url,
                **({"STRANDLINE_API_KEY": settings.key} if settings.key else {}),
            },
        )
    finally:
        os._exit(1)
