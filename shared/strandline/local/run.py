"""`make run`: starts the service, prints how to call it, and waits for Ctrl-C."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

import psycopg

from strandline.config import get_settings
from strandline.errors import StrandlineError
from strandline.local import run_interruptible
from strandline.local.log_file import make_log_path
from strandline.local.ports import read_env_port
from strandline.local.postgres_installation import PostgresUnusable
from strandline.local.runtime import (
    RunningService,
    run_local_service,
)

DEFAULT_PORT = 8080
_POLL_SECONDS = 0.2
"""Seconds. A signal may reach any thread, but Python handles it in the main one, and a wait without
a time limit would not wake for it."""


def find_data_directory() -> Path:
    """The data directory: database and payloads."""
    return Path(os.environ.get("STRANDLINE_DATA_DIR") or ".strandline")


def read_http_port() -> int:
    """The port of the HTTP server."""
    return read_env_port("STRANDLINE_PORT", DEFAULT_PORT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until a signal arrives or the data is lost; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make run", description=__doc__)
    parser.add_argument("--tls", action="store_true", help="serve HTTPS, with client certificates")
    if parser.parse_args(arguments).tls:
        os.environ["STRANDLINE_TLS"] = "1"
    run_interruptible.exit_at_once_on_signals()
    start = time.monotonic()
    # Unlike an Event's lock, a SimpleQueue may be used by a signal handler that interrupts a wait
    # on it.
    reasons = SimpleQueue[str]()
    try:
        with run_local_service(
            find_data_directory(), read_http_port(), on_loss=reasons.put
        ) as service:
            run_interruptible.stop_on_first_signal(lambda: reasons.put(""))
            print(format_greeting(service, time.monotonic() - start), flush=True)
            if loss := _wait_for_reason_to_stop(reasons):
                print(f"\nstrandline: {loss}", file=sys.stderr, flush=True)
                run_interruptible.start_exit_timer(1)
                return 1
            print("\nStopping …", flush=True)
    except (StrandlineError, PostgresUnusable, psycopg.Error, OSError) as error:
        print(f"strandline: {error}", file=sys.stderr, flush=True)
        return 1
    print("Stopped. Everything is kept in", service.directory)
    return 0


def _wait_for_reason_to_stop(reasons: SimpleQueue[str]) -> str:
    """Wait for a reason to stop: a message about lost data, or an empty text after a signal."""
    while True:
        with suppress(Empty):
            return reasons.get(timeout=_POLL_SECONDS)


def format_greeting(service: RunningService, seconds: float) -> str:
    """The text that is printed once the service answers, after so many seconds."""
    body = (
        '{"participants": ["user:alice", "agent:helper"], "role": "user", '
        '"content": "The buoy goes out on Friday."}'
    )
    question = '{"query": "When does the buoy go out?", "participants": ["user:alice"]}'
    warnings = "".join(f"\nWARNING: {warning}\n" for warning in service.warnings)
    certificate_example = _make_certificate_example(service, question)
    curl = f"curl -s{_make_curl_trust_option(service)}"
    key = service.agents.token
    headers = f"-H 'X-API-Key: {key}' -H 'Content-Type: application/json'"
    return f"""
Strandline answers at {service.url} (ready in {seconds:.1f} s; data in {service.directory})
The log, with a line for each request:  {make_log_path(service.directory)}
Language model: {_describe_language_model()}
{warnings}
The API key for your agents, {service.agents.notice}. It reads and writes the memory of tenant
"local", always on behalf of somebody, and is stored in {service.agents.file}:
  {key}

The admin's key, {service.admin.notice}. It also starts jobs, and reads everybody where a
call says so. It is stored in {service.admin.file}:
  {service.admin.token}
No other account can read these files.

For the Python client and the command line:
  export STRANDLINE_URL={service.url} STRANDLINE_API_KEY={key}

A first memory, and a first question:
  {curl} {service.url}/api/v1/events {headers} -d '{body}'
  {curl} {service.url}/api/v1/recall {headers} -d '{question}'

{certificate_example}See what is remembered, and why: {service.url}/console
{_suggest_next_step()}
Ctrl-C stops everything.
"""


def _describe_language_model() -> str:
    """The language model in use. Which address and key it has is not shown."""
    settings = get_settings()
    if settings.llm_provider == "none":
        return "none; the heuristic model does its tasks (docs/models.md)"
    return f"{settings.llm_provider}:{settings.llm_model}"


def _suggest_next_step() -> str:
    """What to try next: a checkout has more than an installed package."""
    if (Path(__file__).parents[3] / "Makefile").exists():
        return "`make demo` in another terminal shows in seconds what it does."
    return "`strandline simulate` in another terminal tries everything out."


def _make_curl_trust_option(service: RunningService) -> str:
    """The curl option that makes it trust the server's certificate; empty if it needs none."""
    own_authority = service.tls and service.tls.client
    return f" --cacert {service.tls.authority}" if service.tls and own_authority else ""


def _make_certificate_example(service: RunningService, question: str) -> str:
    """The same question, sent with the client certificate that was issued here; empty without
    one."""
    if service.tls is None or service.tls.client is None:
        return ""
    options = f"--cert {service.tls.client} --key {service.tls.client_key}"
    return f"""The same without a key, with a client certificate of the same tenant:
  curl -s{_make_curl_trust_option(service)} {options} {service.url}/api/v1/recall \\
    -H 'Content-Type: application/json' -d '{question}'

"""


if __name__ == "__main__":
    sys.exit(main())
