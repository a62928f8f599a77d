"""Every function at everything that it asks of AWS, each by the event that really calls it."""

import importlib
import json
import time
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from moto.s3.models import s3_backends
from psycopg.conninfo import conninfo_to_dict

from infra.permissions import ResourceArns
from strandline.apidocs import examples
from strandline.background.run_request_handler import SchedulerResources
from strandline.config import get_settings
from strandline.db import migrate
from strandline.db.migrate import Migration
from strandline.embeddings.embedder import Embedder
from strandline.errors import Unavailable
from strandline.function_specs import FUNCTIONS, JOBS
from strandline.local.aws import LocalAws, make_local_client
from strandline.local.lambda_context import ACCOUNT_ID, REGION, LambdaContext
from strandline.log.block_lookup import MAX_BYTES
from strandline.resources import Resources
from strandline.tuning import DEFAULTS
from tests.chat_service import ScriptedTasks, deliver_turn, use_model
from tests.graph_files import tell_entity
from tests.infra.recorded_calls import (
    EMBEDDING_MODEL,
    GROUP,
    MODEL,
    STARTER,
    STATE_MACHINE,
    Ear,
    stage,
)
from tests.mcp_calls import ALICE, HELPER, call_tool, calls_of, post, prepare
from tests.strandline.apidocs.example_calls import Story
from tests.strandline.topics.outline import drop_index
from tests.support import APP, KEY_SECRET, OWNER, Gateway, ScratchDatabase, user_message
from tests.uploads import age, begin, cid_of, citing, pending_key, put_unchecked, upload_file

EVENTS = "/api/v1/events"
INSERT = "/api/v1/insert"


def take(
    base: ScratchDatabase, aws: LocalAws, embedder: Embedder, patch: pytest.MonkeyPatch
) -> tuple[Ear, ResourceArns]:
    """Let each have its turns; gives what was heard, and of what stage."""
    embedder.embed(["warm"], timeout=60.0)
    with closing(make_local_client("secretsmanager", region_name=REGION)) as manager:
        secrets = {
            name: manager.create_secret(Name=f"{base.name}-{name}", SecretString=text)["ARN"]
            for name, text in _secret_texts(base).items()
        }
    ear = Ear()
    ear.listen(patch)
    for name, value in _environment(base, aws, secrets).items():
        patch.setenv(f"STRANDLINE_{name}", value)
    for fn in FUNCTIONS:
        handler = importlib.import_module(f"functions.{fn.name}.handler")
        patch.setattr(handler, "lambda_handler", ear.turn(fn.name, handler.lambda_handler))
    with _serving(ear, base, embedder, patch) as front:
        _over_http(front)
        _over_mcp(base, front)
        _late_answers(base, front)
        _append_without_message(front, patch)
        _uploads(base, aws, front)
        _background(base, aws, front)
        _work_during_outage(patch)
        _with_bedrock(base, front, patch)
        _erase_versions(base, aws, front)
    _migrate(patch)
    _wake(patch)
    return ear, stage(aws.bucket, secrets)


def _secret_texts(base: ScratchDatabase) -> Mapping[str, str]:
    superuser = conninfo_to_dict(base.admin_url)
    administrator = {"username": superuser["user"], "password": superuser["password"]}
    return {
        "secrets": json.dumps({"key_secret": KEY_SECRET}),
        "administrator_secret": json.dumps(administrator),
        "first_key_secret": "made by the stack",
    }


def _environment(
    base: ScratchDatabase, aws: LocalAws, secrets: Mapping[str, str]
) -> Mapping[str, str]:
    """What the stack tells its functions, all of them at once."""
    place = f"host=127.0.0.1 port={base.server.port} dbname={base.name}"
    return {
        "DATABASE_URL": f"{place} user={APP}",
        "DATABASE_AUTH": "iam",
        "SECRETS": secrets["secrets"],
        "KEY_SECRET": "",  # from the secret; here for the patch to take it back
        "BUCKET": aws.bucket,
        "WORK_QUEUE_URL": aws.work_queue_url,
        "JOB_QUEUE_URL": aws.job_queue_url,
        "OWNER_DATABASE_URL": f"{place} user={OWNER}",
        "ADMINISTRATOR_DATABASE_URL": place,
        "ADMINISTRATOR_SECRET": secrets["administrator_secret"],
        "FIRST_KEY_SECRET": secrets["first_key_secret"],
        "STATE_MACHINE": STATE_MACHINE,
        "SCHEDULE_GROUP": GROUP,
        "SCHEDULER_ROLE": STARTER,
    }


@contextmanager
def _serving(
    ear: Ear, base: ScratchDatabase, embedder: Embedder, patch: pytest.MonkeyPatch
) -> Generator[Gateway]:
    """The functions with services begun as in Lambda."""
    patch.setenv("AWS_LAMBDA_FUNCTION_NAME", "any")
    services: list[Resources] = []
    for fn in FUNCTIONS:
        if "database" in fn.needs:
            patch.setenv("STRANDLINE_KEY_SECRET", "")
            get_settings.cache_clear()
            with ear.of(fn.name):
                service = Resources()
            service.__dict__["embedder"] = embedder
            services.append(service)
            handler = importlib.import_module(f"functions.{fn.name}.handler")
            patch.setattr(handler, "resources", service)
    front = Gateway(base.url)
    try:
        yield front
    finally:
        for database in [front.database, *(service.database for service in services)]:
            database.close()


def _migrate(patch: pytest.MonkeyPatch) -> None:
    """A release whose last migration takes longer than the function lives."""
    handler: Any = importlib.import_module("functions.migrate.handler")
    files = migrate.list_migrations()
    long = Migration(
        files[-1].number + 1,
        "9999_long.sql",
        "-- long: planted\nupdate tenants set tuning = '{}' where tuning is distinct from '{}'",
    )
    with patch.context() as scoped_patch:
        scoped_patch.setattr(migrate, "list_migrations", lambda: [*files, long])
        assert handler.lambda_handler({}, LambdaContext("migrate", 5))["left"] == [long.name]


def _over_http(front: Gateway) -> None:
    """Every route, by the examples of the document."""
    story = Story(front)
    for example in examples.load_examples():
        story.tell(example)


def _over_mcp(base: ScratchDatabase, front: Gateway) -> None:
    """Every tool, with content that becomes a payload, and a payload as a resource."""
    base.rows("delete from jobs")  # one of each kind at a time
    options: dict[str, Any] = {"key": front.key(rights=("read", "write", "admin"))}
    known_value = prepare(front, options["key"])
    options["participants"] = [ALICE, HELPER]
    for name, samples in calls_of(known_value).items():
        for arguments, expected in samples:
            text, _ = call_tool(front, name, arguments, **options)
            assert expected in text, (name, text)
    large = {"content": "The tide table of the tools. " * 5000}
    assert not call_tool(front, "add", large, **options)[1]
    file = {"uri": f"memoria://file/{known_value.file_cid}"}
    assert "text" in post(front, "resources/read", file, **options).text


def _late_answers(base: ScratchDatabase, front: Gateway) -> None:
    """A chat whose answer is late, twice, and polled; by tools, too. The worker gives one answer,
    the other is left to a sweep."""
    key, body = front.key(), {"message": "Is the tide late?", "participants": [ALICE, HELPER]}
    own = [(name, use_model(ScriptedTasks("out_of_time"), name)) for name in ("query", "mcp")]
    headers = {"Idempotency-Key": "late"}
    options: dict[str, Any] = {"key": key, "participants": [ALICE, HELPER]}
    turn = {"message": "Is it late by tools?", "event_key": "late by tools"}
    turn_id = ""
    for _ in range(2):
        reply = front.call("POST", "/api/v1/chat", body, key=key, headers=headers)
        assert reply.status == 202
        path = f"/api/v1/turns/{reply.body['turn_id']}"
        text, _ = call_tool(front, "chat", turn, **options)
        turn_id = text.partition("turn_id=")[2].partition(" ")[0]
        assert front.call("GET", path, query={"participants": ALICE}, key=key).status == 200
        assert not call_tool(front, "query", {"turn_id": turn_id}, **options)[1]
    for name, tasks in own:
        use_model(tasks, name)
    model = use_model(ScriptedTasks(), "worker")
    base.rows(  # so that the reply is the first of its scope to be sent to the queue
        "delete from scope_work where participants = array['agent:helper', 'user:alice']"
    )
    assert deliver_turn(turn_id) == []
    use_model(model, "worker")
    base.rows("update turns set due_at = now() where state = 'waiting'")


def _append_without_message(front: Gateway, patch: pytest.MonkeyPatch) -> None:
    """Appends whose message is not taken: they request a sweep."""

    def refuse(**_: object) -> Mapping[str, object]:
        return {"Failed": [{"Id": "0", "SenderFault": False, "Code": "InternalError"}]}

    for name, path in (("ingest", EVENTS), ("query", INSERT)):
        handler: Any = importlib.import_module(f"functions.{name}.handler")
        with patch.context() as scoped_patch:
            away = SimpleNamespace(send_message_batch=refuse)
            scoped_patch.setattr(handler.resources.work_queue, "_sqs", away)
            alone = user_message("Nobody hints at it.", f"user:alone-at-{name}")
            assert front.call("POST", path, alone, key=front.key()).status == 201
    tools: Any = importlib.import_module("functions.mcp.handler")
    with patch.context() as scoped_patch:
        scoped_patch.setattr(
            tools.resources.work_queue, "_sqs", SimpleNamespace(send_message_batch=refuse)
        )
        alone = {"content": "Nobody hints at it.", "participants": ["user:alone-at-mcp"]}
        assert not call_tool(front, "add", alone, key=front.key())[1]


def _uploads(base: ScratchDatabase, aws: LocalAws, front: Gateway) -> None:
    """Payloads of all ways in: large content, uploads that are there, are not, or are not as
    announced, and of a store that verified nothing. And one that no answer holds."""
    key = front.key()
    alice = front.key(user=ALICE)
    huge = bytes(MAX_BYTES + 1)
    upload_file(front, alice, huge)
    assert front.call("POST", EVENTS, citing(cid_of(huge), ALICE), key=alice).status == 201
    reply = front.call("GET", f"/ipfs/{cid_of(huge)}", query={"format": "raw"}, key=alice)
    assert reply.status == 307
    for path in (EVENTS, INSERT):
        large = user_message(f"The tide table of {path}. " * 5000)
        assert front.call("POST", path, large, key=key).status == 201
        missing = b"never put for %s" % path.encode()
        begin(front, key, missing)
        assert front.call("POST", path, citing(cid_of(missing)), key=key).status == 422
        text = b"The log of the buoy, by %s." % path.encode()
        upload_file(front, key, text, mime_type="text/plain")
        for _ in range(2):  # as an upload, and then as a payload
            assert front.call("POST", path, citing(cid_of(text)), key=key).status == 201
        other = b"What was announced for %s." % path.encode()
        upload = begin(front, key, other)
        put_unchecked(aws, pending_key("acme", upload), b"What was not, and longer than that.")
        assert front.call("POST", path, citing(cid_of(other)), key=key).status == 422
    file = tell_entity("The buoy", ["user:alice"])
    upload_file(front, key, file)
    body = {"cid": cid_of(file)}
    assert front.call("POST", "/api/v1/graph/imports", body, key=key).status == 201
    age(base)


def _erase_versions(base: ScratchDatabase, aws: LocalAws, front: Gateway) -> None:
    """An erasure, and a sweep of uploads, in a bucket that keeps versions."""
    with closing(make_local_client("s3")) as s3:
        s3.put_bucket_versioning(Bucket=aws.bucket, VersioningConfiguration={"Status": "Enabled"})
    _erase(front, b"A text that is forgotten with its versions.")
    upload_file(front, front.key(), b"A text that nobody cites.")
    age(base)
    front.run_job("sweeper", "acme")
    for _ in range(2):
        front.run_job("eraser", "acme")
        base.rows("update blob_removals set marked_at = marked_at - interval '2 days'")


def _erase(front: Gateway, text: bytes) -> None:
    """Events with payloads are erased: what was uploaded, and what came with its event."""
    key = front.key(user="user:eve", rights=("read", "write", "erase"))
    upload_file(front, key, text, mime_type="text/plain")
    for body in (citing(cid_of(text)), {"content": f"{text!r} " * 4000}):
        message = {"role": "user", **body, "participants": ["user:eve"]}
        reply = front.call("POST", EVENTS, message, key=key)
        assert reply.status == 201, reply.text
        path = f"{EVENTS}/{reply.body['event_id']}"
        assert front.call("DELETE", path, key=key).status == 200


def _background(base: ScratchDatabase, aws: LocalAws, front: Gateway) -> None:
    """The worker by its message, and the jobs' three verbs, with something to remove."""
    _talk_on(front)
    _lose_payload(aws, front, b"A text that the worker misses.")
    _work(base)
    put_unchecked(aws, f"acme/{cid_of(b'nobody cites it')}", b"nobody cites it")
    bucket: Any = s3_backends[ACCOUNT_ID]["aws"].buckets[aws.bucket]
    for key in bucket.keys.values():
        key.last_modified -= timedelta(days=2)
    text = b"A text that only the sweeper finds."
    upload_file(front, front.key(), text, mime_type="text/plain")
    assert front.call("POST", EVENTS, citing(cid_of(text)), key=front.key()).status == 201
    _talk_on(front)
    _lose_payload(aws, front, b"A text that the sweeper misses.")
    base.rows("delete from jobs")  # what the examples started would be another run's
    _erase(front, b"A text that is forgotten.")
    # exports that grow old before an erasure removes them; payloads that no archiver has removed
    for job in ("sweeper", "eraser", "eraser", "archiver", *(job.name for job in JOBS)):
        front.run_job(job, "acme")
        # What nobody cites goes at the second look.
        base.rows("update blob_removals set marked_at = marked_at - interval '2 days'")
        # The end of a run that comes twice finds its list forgotten.
        handler: Any = importlib.import_module(f"functions.{job}.handler")
        handler.lambda_handler({"verb": "finish", "run": "over"}, LambdaContext(job, 900))


def _lose_payload(aws: LocalAws, front: Gateway, text: bytes) -> None:
    """An event whose payload is gone from the bucket."""
    upload_file(front, front.key(), text, mime_type="text/plain")
    assert front.call("POST", EVENTS, citing(cid_of(text)), key=front.key()).status == 201
    with closing(make_local_client("s3")) as s3:
        s3.delete_object(Bucket=aws.bucket, Key=f"acme/{cid_of(text)}")


def _talk_on(front: Gateway) -> None:
    """What came before is judged when enough has come after it."""
    for n in range(DEFAULTS.ahead_events + 1):
        assert (
            front.call("POST", EVENTS, user_message(f"And then {n}?"), key=front.key()).status
            == 201
        )


def _with_bedrock(base: ScratchDatabase, front: Gateway, patch: pytest.MonkeyPatch) -> None:
    """What asks a language model or an embedding model, with Bedrock's: until the minute of the
    language model is over, and a scope has to wait for the next."""
    said_of = {"LLM_PROVIDER": "bedrock", "LLM_MODEL": MODEL, "LLM_CALLS_PER_MINUTE": "4"}
    said_of |= {"LLM_BREAKER_FAILURES": "1000", "EMBEDDING_PROVIDER": "bedrock"}
    said_of |= {"EMBEDDING_MODEL": EMBEDDING_MODEL, "EMBEDDING_DIMENSIONS": "256"}
    said_of["TUNING"] = json.dumps({"quality": "permissive"})
    for name, value in said_of.items():
        patch.setenv(f"STRANDLINE_{name}", value)
    get_settings.cache_clear()
    key = front.key(rights=("read", "write", "admin"))
    _judge_by_tool(front, key)
    # In a space without calibration every pair of messages is a question.
    for name in ("query", "mcp", "worker", "sweeper", "eraser"):
        handler: Any = importlib.import_module(f"functions.{name}.handler")
        del handler.resources.__dict__["embedder"]
        # The tenants have come to read that space; no function remembers otherwise.
        handler.resources.__dict__.pop("authenticator", None)
    base.rows("update tenants set reading_space = %s", f"bedrock:{EMBEDDING_MODEL}/256")
    asking = {"query": "Nils Berg", "participants": [ALICE]}
    assert not call_tool(front, "mie_query", asking, key=key)[1]
    base.rows("delete from model_rates")
    for name in ("query", "worker", "sweeper", "builder", "promoter", "archiver", "eraser"):
        handler = importlib.import_module(f"functions.{name}.handler")
        handler.resources.__dict__.pop("llm", None)
        if name == "builder":
            _build_anew(base, front)
            continue
        if name in ("promoter", "archiver"):
            _promote_again(base, front, name)
            continue
        if name == "eraser":
            _form_anew(base, front)
            _form_told_anew(base, front, patch)
            continue
        for n in range(8):
            # Not in English, so that the heuristic model leaves it to the language model.
            text = f"Wie hoch steht die Flut heute um {n} Uhr am alten Hafen, und wer segelt mit?"
            talk = user_message(text, f"user:{name}", session_id=name)
            assert front.call("POST", EVENTS, talk, key=key).status == 201
        if name == "query":
            reply = front.call("GET", f"/api/v1/sessions/{name}/analysis/topics", key=key)
            assert reply.status == 200
            asking = {"query": "Wer segelt mit?", "participants": [f"user:{name}"]}
            assert front.call("POST", "/api/v1/recall", asking, key=key).status == 200
        elif name == "worker":
            _work(base)
        else:
            base.rows("delete from model_rates")
            base.rows("delete from jobs")
            front.run_job("sweeper", "acme")


def _judge_by_tool(front: Gateway, key: str) -> None:
    """Contradictions that a tool has judged, with a model."""
    tools: Any = importlib.import_module("functions.mcp.handler")
    tools.resources.__dict__.pop("llm", None)
    claim = {"content": "Nils Berg skippers the Gull", "threshold": 0.1, "participants": [ALICE]}
    assert not call_tool(front, "mie_conflicts", claim, key=key)[1]


def _build_anew(base: ScratchDatabase, front: Gateway) -> None:
    """A build of all trees, with a model."""
    drop_index(base)
    base.rows("delete from model_rates")
    base.rows("delete from jobs")
    assert front.run_job("builder", "acme")["summaries"]


def _form_anew(base: ScratchDatabase, front: Gateway) -> None:
    """A chain that lost an event and keeps a text payload, which is missing, is formed again with a
    model."""
    ((event_id, cid),) = base.rows(
        "select e.event_id::text, b.blob_cid from chain_events e"
        " join chain_events other using (tenant_id, chain_id)"
        " join events b on b.tenant_id = e.tenant_id and b.event_id = other.event_id"
        " where e.tenant_id = 'acme' and b.blob_cid is not null and b.mime_type like 'text/%%'"
        " and b.event_id <> e.event_id limit 1"
    )
    with closing(make_local_client("s3")) as s3:
        s3.delete_object(Bucket=get_settings().bucket, Key=f"acme/{cid}")
    key = front.key(rights=("read", "write", "erase"))
    assert front.call("DELETE", f"{EVENTS}/{event_id}", key=key).status == 200
    base.rows("delete from model_rates")
    base.rows("delete from jobs")
    front.run_job("eraser", "acme")


def _form_told_anew(base: ScratchDatabase, front: Gateway, patch: pytest.MonkeyPatch) -> None:
    """A chain that lost an event and is still worth listing, with calls enough for all that a model
    is asked of it: its summary is embedded."""
    ((event_id,),) = base.rows(
        "select min(event_id::text) from chain_events join events using (tenant_id, event_id)"
        " where tenant_id = 'acme' and content <> '' group by chain_id"
        " order by count(*) desc, chain_id limit 1"
    )
    patch.setenv("STRANDLINE_LLM_CALLS_PER_MINUTE", "1000")
    get_settings.cache_clear()
    handler: Any = importlib.import_module("functions.eraser.handler")
    del handler.resources.__dict__["llm"]
    key = front.key(rights=("read", "write", "erase"))
    assert front.call("DELETE", f"{EVENTS}/{event_id}", key=key).status == 200
    base.rows("delete from jobs")
    front.run_job("eraser", "acme")


def _promote_again(base: ScratchDatabase, front: Gateway, job: str) -> None:
    """A promotion of all chains, with a model."""
    base.rows("delete from decisions where kind = 'extracted'")
    base.rows("update chain_versions set rejected = null")
    base.rows(
        "update chains set status = 'active', archived_at = null, promoted_version = 0,"
        " promote_until = now() + interval '1 hour', cold_at = now() - interval '1 second'"
    )
    base.rows("delete from model_rates")
    base.rows("delete from jobs")
    assert front.run_job(job, "acme")["chains_promoted"]


def _work(base: ScratchDatabase) -> None:
    """The worker's turn, for all that is due."""
    worker: Any = importlib.import_module("functions.worker.handler")
    scopes = [scope for (scope,) in base.rows("select distinct scope_id::text from scope_work")]
    assert scopes
    message = {"messageId": "m", "body": json.dumps({"tenant": "acme", "scopes": scopes})}
    worker.lambda_handler({"Records": [message]}, LambdaContext("worker", 120))


def _work_during_outage(patch: pytest.MonkeyPatch) -> None:
    """A message that comes while the database is away returns early."""
    worker: Any = importlib.import_module("functions.worker.handler")

    def away(*_: object) -> None:
        raise Unavailable

    body = json.dumps({"tenant": "acme", "scopes": []})
    message = {"messageId": "m", "receiptHandle": "r", "body": body}
    with patch.context() as scoped_patch:
        scoped_patch.setattr(worker.resources.database, "connection", away)
        answer = worker.lambda_handler({"Records": [message]}, LambdaContext("worker", 120))
    assert answer == {"batchItemFailures": [{"itemIdentifier": "m"}]}


def _wake(patch: pytest.MonkeyPatch) -> None:
    """Requests for a run now, and for one later."""
    handler: Any = importlib.import_module("functions.scheduler.handler")
    patch.setattr(handler, "scheduler", SchedulerResources())
    later = datetime.now(UTC) + timedelta(hours=1)
    requests = ({"job": "sweeper", "run": "r"}, {"job": "sweeper", "at": later.isoformat()})
    records = [
        {"messageId": str(time.monotonic()), "body": json.dumps(request)} for request in requests
    ]
    answer = handler.lambda_handler({"Records": records}, LambdaContext("scheduler", 30))
    assert answer == {"batchItemFailures": []}
