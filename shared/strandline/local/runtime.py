"""Starts and stops the whole service on one machine: database, AWS, queues, scheduler and HTTP."""

import json
import logging
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import uvicorn
from psycopg import sql

from strandline.background.run_request_handler import SchedulerResources
from strandline.clock import Clock, utc_now
from strandline.config import get_settings
from strandline.db.database import Caller, Database
from strandline.db.migrate import migrate, prepare_roles
from strandline.embeddings.factory import make_embedder
from strandline.errors import Misconfigured
from strandline.function_specs import (
    DAILY_SWEEP_SCHEDULE,
    FUNCTIONS,
    JOBS,
    FunctionSpec,
    route_table,
)
from strandline.llm.factory import require_provider_settings
from strandline.local import lambda_context, postgres_installation, sync_detection, tls
from strandline.local.aws import LocalAws
from strandline.local.event_sources import (
    GROUP,
    ROLE,
    LocalScheduler,
    QueuePoller,
    create_daily_schedule,
)
from strandline.local.http_server import GatewayApp
from strandline.local.kept_keys import ADMIN, AGENTS, ApiKeyFiles, StoredApiKey, write_private_file
from strandline.local.lambda_context import Handler
from strandline.local.log_file import log_to_file, make_log_path
from strandline.local.ports import HOST, open_listening_socket, read_env_port
from strandline.local.postgres import EmbeddedPostgres
from strandline.local.postgres_supervisor import PostgresSupervisor
from strandline.local.state_machine import StateMachine
from strandline.local.tls import PeerCertificateProtocol, TlsFiles
from strandline.observability import logger
from strandline.resources import Resources, log_unknown_settings

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""The names by which this machine calls itself."""
TENANT = "local"
_DATABASE = "strandline"
_OWNER, _APP = "strandline_owner", "strandline_app"
_SWEEP_SECONDS = "10"
_SECRETS = "secrets.json"
_SWITCH_SECONDS = 0.0005
"""Python's thread switch interval, in seconds. The worker folds in the process that answers
requests, and each request waits for its turn several times, with Python's default 5 ms each."""
_RELEASE_LEASES = tuple(
    sql.SQL("update {} set leased_until = '-infinity' where leased_until > now()").format(
        sql.Identifier(table)
    )
    for table in ("scope_work", "jobs", "job_shards")
)


@dataclass(frozen=True)
class RunningService:
    """A running service."""

    url: str
    admin: StoredApiKey
    """A key of tenant `local` with the rights to read, to write and of an admin."""
    agents: StoredApiKey
    """A key of it for agents: it reads and writes."""
    directory: Path
    postgres: EmbeddedPostgres
    warnings: Sequence[str] = ()
    """Risks to the data, each with what to do."""
    tls: TlsFiles | None = None
    """The certificates of HTTPS; None for plain HTTP."""

    @property
    def key(self) -> str:
        """The admin's key."""
        return self.admin.token


def make_connection_file_path(directory: Path) -> Path:
    """The file with the address and key of the latest start. It is in the requested directory."""
    return directory / "local.json"


def _log_data_loss(message: str) -> None:
    logger.critical("%s", message)


def _write_connection_file(
    directory: Path, service: RunningService, environment: Mapping[str, str]
) -> None:
    """Store the service's address, key and certificate paths for other processes."""
    paths = vars(service.tls).items() if service.tls else None
    content = {
        "url": service.url,
        "key": service.key,
        "environment": environment,
        "tls": None if paths is None else {name: str(path) for name, path in paths if path},
    }
    write_private_file(make_connection_file_path(directory), json.dumps(content))


@contextmanager
def run_local_service(
    directory: Path,
    port: int,
    clock: Clock = utc_now,
    on_loss: Callable[[str], None] = _log_data_loss,
) -> Generator[RunningService]:
    """Start everything on `directory`, serve on the loopback interface, and stop it again. `clock`
    decides what is due. `on_loss` is called once if the directory is removed meanwhile.

    Raises Misconfigured when the port is in use, PostgresUnusable when the database cannot start.
    """
    requested_directory = directory
    try:
        directory = postgres_installation.choose_reachable_directory(directory.absolute())
        for folder in (requested_directory, directory):
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise Misconfigured(
            f"STRANDLINE_DATA_DIR: {requested_directory} cannot be the data directory "
            f"({error.strerror}). Name a directory that this account can make and write."
        ) from error
    warnings = sync_detection.find_risks_to_database(directory)
    with ExitStack() as stack:
        stack.callback(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(_SWITCH_SECONDS)
        stack.enter_context(log_to_file(make_log_path(directory)))
        warnings = [*warnings, *log_unknown_settings()]
        tls_files = tls.load_or_issue_tls_files(directory)
        listener = stack.enter_context(closing(open_listening_socket(port)))
        stored_secrets = _load_or_create_secrets(directory)
        postgres = stack.enter_context(
            EmbeddedPostgres(directory / "postgres", port=read_env_port("STRANDLINE_PG_PORT", 0))
        )
        aws = stack.enter_context(LocalAws(directory))
        files = (directory / _SECRETS, aws.blobs)
        stack.enter_context(closing(PostgresSupervisor(postgres, files, on_loss)))
        machine = stack.enter_context(
            StateMachine(lambda_context.find_state_machine_definition(), aws.bucket)
        )
        _create_and_migrate_database(postgres, stored_secrets)
        url = postgres.dsn(_DATABASE, _APP, stored_secrets["app_password"])
        environment = _set_environment(url, aws, machine, stored_secrets["key_secret"], tls_files)
        keys = _load_or_create_keys(stack, url, stored_secrets["key_secret"], directory, tls_files)
        handlers = _load_function_handlers(stack, warnings, clock)
        _start_queue_pollers_and_scheduler(stack, handlers, aws, machine, clock)
        _serve_http(stack, handlers, listener, tls_files)
        scheme = "https" if tls_files else "http"
        service = RunningService(
            f"{scheme}://{HOST}:{listener.getsockname()[1]}",
            *(*keys, directory, postgres, warnings, tls_files),
        )
        _write_connection_file(requested_directory, service, environment | aws.environment())
        yield service


def _load_or_create_keys(
    stack: ExitStack, url: str, key_secret: str, directory: Path, tls_files: TlsFiles | None
) -> tuple[StoredApiKey, StoredApiKey]:
    """The keys of the admin and of agents. Registers the certificate of this machine's client."""
    database = Database(url)
    stack.callback(database.close)
    keeper = ApiKeyFiles(database, TENANT, key_secret)
    admin = keeper.load_or_create(directory / "admin.key", ADMIN)
    agents = keeper.load_or_create(directory / "agents.key", AGENTS)
    tls.register_local_client_certificate(database.connect_as(Caller(TENANT, ())), tls_files)
    return admin, agents


def _start_queue_pollers_and_scheduler(
    stack: ExitStack,
    handlers: Mapping[str, Handler],
    aws: LocalAws,
    machine: StateMachine,
    clock: Clock,
) -> None:
    """Make queues, schedules and the state machine invoke the functions that they invoke in AWS."""
    machine.add_handlers({job.name: handlers[job.name] for job in JOBS})
    loops = (
        QueuePoller(aws.work_queue_url, handlers["worker"]),
        QueuePoller(aws.job_queue_url, handlers["scheduler"]),
        LocalScheduler(clock),
    )
    for loop in loops:
        loop.start()
    stack.callback(machine.wait_for_runs)  # after the loops, which may start some
    stack.callback(_stop_loops_in_parallel, loops)
    create_daily_schedule(
        "daily-sweep", DAILY_SWEEP_SCHEDULE, machine.arn, json.dumps({"job": "sweeper"})
    )
    # run requests of the last run are lost, and a long sweep makes new ones at its end alone
    machine.start("sweeper")
    machine.start("eraser")


def _stop_loops_in_parallel(loops: Sequence[QueuePoller | LocalScheduler]) -> None:
    """Stop all at once: each may wait a second for its current request."""
    threads = [threading.Thread(target=loop.stop) for loop in loops]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _load_or_create_secrets(directory: Path) -> dict[str, str]:
    """This directory's own secrets, created once; readable only by its owner."""
    file = directory / _SECRETS
    if not file.exists():
        names = ("key_secret", "owner_password", "app_password")
        write_private_file(file, json.dumps({name: secrets.token_urlsafe(32) for name in names}))
    return json.loads(file.read_text())


def _create_and_migrate_database(
    postgres: EmbeddedPostgres, stored_secrets: dict[str, str]
) -> None:
    with psycopg.connect(postgres.dsn(), autocommit=True) as administrator:
        exists = administrator.execute(
            "select from pg_database where datname = %s", (_DATABASE,)
        ).fetchone()
        if exists is None:
            statement = sql.SQL("create database {}").format(sql.Identifier(_DATABASE))
            administrator.execute(statement)
    with psycopg.connect(postgres.dsn(_DATABASE), autocommit=True) as administrator:
        passwords = {_OWNER: stored_secrets["owner_password"], _APP: stored_secrets["app_password"]}
        prepare_roles(administrator, passwords)
    owner_url = postgres.dsn(_DATABASE, _OWNER, stored_secrets["owner_password"])
    with psycopg.connect(owner_url, autocommit=True) as owner:
        migrate(owner)
    with psycopg.connect(postgres.dsn(_DATABASE)) as administrator:
        for (
            release_scope_leases
        ) in _RELEASE_LEASES:  # their holders ended with the service's last run
            administrator.execute(release_scope_leases)


def _set_environment(
    url: str, aws: LocalAws, machine: StateMachine, key_secret: str, tls_files: TlsFiles | None
) -> dict[str, str]:
    environment = {
        "STRANDLINE_DATABASE_URL": url,
        "STRANDLINE_BUCKET": aws.bucket,
        "STRANDLINE_WORK_QUEUE_URL": aws.work_queue_url,
        "STRANDLINE_JOB_QUEUE_URL": aws.job_queue_url,
        # Five minutes would be too long a wait on one machine.
        "STRANDLINE_SWEEP_SECONDS": os.environ.get("STRANDLINE_SWEEP_SECONDS") or _SWEEP_SECONDS,
        "STRANDLINE_STATE_MACHINE": machine.arn,
        "STRANDLINE_SCHEDULE_GROUP": GROUP,
        "STRANDLINE_SCHEDULER_ROLE": ROLE,
        "STRANDLINE_KEY_SECRET": key_secret,
        "STRANDLINE_CLIENT_CERTIFICATES": str(bool(tls_files and tls_files.authority)).lower(),
    }
    os.environ |= environment
    get_settings.cache_clear()
    require_provider_settings(get_settings())  # as a Lambda's init phase does
    return environment


def _load_function_handlers(
    stack: ExitStack, warnings: Sequence[str], clock: Clock
) -> dict[str, Handler]:
    """The handlers of all functions that run while the service does, by name. They share one
    embedding model, which is loaded in the background."""
    embedder = make_embedder(get_settings())
    return {
        fn.name: _load_function_handler(
            stack, fn, Resources(warnings=warnings, clock=clock, embedder=embedder)
        )
        for fn in FUNCTIONS
        if fn.name != "migrate"
    }


def _load_function_handler(stack: ExitStack, fn: FunctionSpec, resources: Resources) -> Handler:
    """A function's real handler with these resources; `stack` closes its connections."""
    module = lambda_context.import_handler_module(fn.name)
    if "database" not in fn.needs:
        vars(module)["scheduler"] = SchedulerResources(resources.clock)
        return module.lambda_handler
    vars(module)["resources"] = resources
    stack.callback(resources.database.close)
    if "model" in fn.needs:
        threading.Thread(
            target=resources.warm_up_embedder, name=f"warm-{fn.name}", daemon=True
        ).start()
    return module.lambda_handler


def _serve_http(
    stack: ExitStack,
    handlers: dict[str, Handler],
    listener: socket.socket,
    tls_files: TlsFiles | None,
) -> None:
    settings = get_settings()
    origins = settings.cors_origins
    waiting = settings.function_waits * sum(spec.waits for spec in FUNCTIONS)
    table = {route: handlers[name] for route, name in route_table(preflights=bool(origins)).items()}
    config = uvicorn.Config(
        GatewayApp(
            table,
            origins=origins,
            waiting=waiting,
            hosts=[*LOOPBACK, *(tls_files.server_names if tls_files else ())],
        ),
        http=PeerCertificateProtocol,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=3,
        **(tls_files.uvicorn_options() if tls_files else {}),
    )
    server = uvicorn.Server(config)
    server.capture_signals = _leave_signals_alone  # the caller decides when to stop
    thread = threading.Thread(target=server.run, args=([listener],), name="http", daemon=True)
    thread.start()

    def stop() -> None:
        # A request that is cut off is not a fault, and a traceback would not explain it.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        server.should_exit = True
        thread.join(10)

    stack.callback(stop)
    while not server.started:
        if not thread.is_alive():
            raise Misconfigured("The HTTP server did not start; its log says why.")
        time.sleep(0.01)


@contextmanager
def _leave_signals_alone() -> Generator[None]:
    yield
