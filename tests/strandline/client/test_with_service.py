"""The client against the real handlers, over HTTP."""

import asyncio
import gc
import time
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypedDict
from uuid import UUID

import pytest
from multiformats import CID, multihash

from strandline import AsyncStrandline, Strandline
from strandline.client import errors
from strandline.personas import routes_acts
from tests.strandline.client.conftest import HttpService
from tests.support import ScratchDatabase
from tests.uploads import cid_of

TASKS, EVENTS_EACH = 32, 8


class Who(TypedDict, total=False):
    """Who takes part."""

    user: str
    agent: str


def test_client_adds_recalls_and_builds_context(client: Strandline) -> None:
    receipt = client.add("The buoy goes out on Friday.", user="alice", agent="helper")
    turn = client.add_turn("Is the Petrel free?", "Yes, from nine.", user="alice", agent="helper")
    assert [receipt.seq, turn.user.seq, turn.agent.seq] == [1, 2, 3]
    hits = client.recall("When does the buoy go out?", user="alice").hits
    assert hits[0].event_id == receipt.event_id
    block = client.context("When does the buoy go out?", user="alice", budget=400)
    assert "The buoy goes out on Friday." in block.text
    assert client.get(receipt.event_id, user="alice").content == "The buoy goes out on Friday."
    newest_first = [event.seq for event in client.get_all(user="alice", page_size=2)]
    assert newest_first == [3, 2, 1]
    assert client.history(receipt.event_id, user="alice").kind == "event"
    assert client.references("buoy", user="alice").tree is not None
    (scope,) = client.scopes(user="alice")
    assert client.scope(scope.scope_id, user="alice").last_seq == 3
    tree = client.query("Petrel", user="alice", mode="exact")
    assert [event.seq for event in tree.scopes[0].events] == [2]
    assert receipt.cid is not None
    assert client.get_by_cid(receipt.cid, user="alice").event_id == receipt.event_id
    block_hash = multihash.digest(client.block(receipt.cid, user="alice"), "sha2-256")
    assert str(CID("base32", 1, "dag-cbor", block_hash)) == receipt.cid
    answer_result = client.insert(
        "The buoy is out.", user="alice", agent="helper", recall={"limit": 1}
    )
    assert [edge.event_id for edge in answer_result.edges] == [receipt.event_id]


def test_client_session_continues_and_ends(client: Strandline) -> None:
    with client.session("tour-7", user="alice", agent="helper") as session:
        first = session.add_turn("Is the Petrel free on Friday?", "Yes, from nine to three.")
        assert first.user.seq == 1
        assert session.add("Good.").seq == 3
        assert "Petrel" in session.context("Which boat?").text
        memory = session.working_memory()
        assert [recent.event.seq for recent in memory.recent] == [3, 2, 1]
        assert session.search("Petrel").session_id == "tour-7"
        assert [*session.chains()] == [*session.heat()] == []
        assert session.topics().session_id == "tour-7"
    with client.session("tour-7") as again:
        assert again.get().session_id == session.session_id
        assert again.scope_id == session.scope_id
    assert [one.session_id for one in client.sessions(user="alice")] == ["tour-7"]
    with client.session("tour-7", user="alice", agent="helper", ends=True) as last:
        last.add("Bye.")
    with pytest.raises(errors.NotFoundError), client.session("tour-7"):
        raise AssertionError("it has ended")
    assert [*client.sessions(user="alice")] == []
    with client.session(user="alice", agent="helper") as anonymous:
        assert anonymous.add("Hello.").seq == 5
    with pytest.raises(ValueError, match="session_id: name the session"):
        client.session()


def test_client_events_iterate_resume_and_follow(client: Strandline) -> None:
    answer = client.add_batch(
        [
            {"participants": ["user:alice"], "role": "user", "content": f"Event {n}."}
            for n in range(12)
        ]
    )
    assert (answer.stored, answer.failed) == (12, 0)
    scope = client.add("Event 12.", user="alice").scope_id
    ids = [event.seq for event in client.events(scope, user="alice", page_size=5)]
    assert ids == [*range(1, 14)]
    feed = client.events(scope, user="alice", page_size=5)
    upto = next(feed).seq
    rest = [event.seq for event in client.events(scope, user="alice", after_seq=upto)]
    assert rest == [*range(2, 14)]
    followed = client.events(scope, user="alice", after_seq=13, follow=True, interval=0.01)
    client.add("Event 13.", user="alice")
    assert next(followed).seq == 14


def test_client_upload_sends_file_once(client: Strandline, tmp_path: Path) -> None:
    file = tmp_path / "harbour.txt"
    file.write_text("The harbour master is called Ines. " * 100)
    progress: list[tuple[int, int]] = []
    receipt = client.upload(
        file, user="alice", progress=lambda sent_bytes, size: progress.append((sent_bytes, size))
    )
    assert progress == [(3500, 3500)]
    assert receipt.blob is not None
    assert receipt.blob.cid == cid_of(file.read_bytes())
    assert (receipt.blob.name, receipt.blob.mime_type) == ("harbour.txt", "text/plain")
    again = client.upload(
        file,
        user="alice",
        progress=lambda sent_bytes, _: pytest.fail(f"{sent_bytes} bytes are sent again"),
    )
    assert again.seq == 2
    place = client.file(receipt.blob.cid, user="alice")
    assert place.size == 3500
    (hit, *_) = client.recall("Who is the harbour master?", user="alice").hits
    assert hit.name == "harbour.txt"
    log = tmp_path / "crane.log"  # a name that tells no media type
    log.write_text("crane 4 stopped: gearbox temperature 141\n")
    client.upload(log, user="alice")
    (hit, *_) = client.recall("Why did the crane stop? gearbox?", user="alice").hits
    assert (hit.name, "gearbox temperature" in (hit.excerpt or "")) == ("crane.log", True)


def test_client_upload_keeps_name_of_each_file(client: Strandline, tmp_path: Path) -> None:
    """Another upload of the same bytes is not told what the first file was called."""
    files = {"alice": tmp_path / "Alice's plan.txt", "bob": tmp_path / "mine.md"}
    for user, file in files.items():
        file.write_text("The same bytes, whoever uploads them.")
        receipt = client.upload(file, user=user)
        assert receipt.blob is not None
        assert receipt.blob.name == file.name
    (hit,) = client.recall("Which bytes?", user="bob", min_relevance=0).hits
    assert hit.name == "mine.md"
    named = client.upload(files["bob"], user="bob", name="other.bin", mime_type="image/png")
    assert named.blob is not None
    assert (named.blob.name, named.blob.mime_type) == ("other.bin", "image/png")


def test_client_graph_stores_and_searches_nodes(client: Strandline) -> None:
    graph, who = client.graph, Who(user="alice", agent="helper")
    nodes = graph.add(
        [
            {"type": "entity", "name": "Petrel", "kind": "product", "ref": "boat"},
            {"type": "fact", "content": "The Petrel is blue.", "ref": "blue"},
            {"type": "topic", "name": "Boats"},
        ],
        **who,
    )
    boat, blue, boats = (node.id for node in nodes.nodes)
    assert graph.get(boat, user="alice").name == "Petrel"
    graph.update(boat, description="A boat.", **who)
    assert graph.get(boat, user="alice").properties["description"] == "A boat."
    graph.update(boat, description=None, **who)
    assert graph.get(boat, user="alice").properties.get("description") is None
    related = graph.relate([{"edge": "fact_entity", "from_id": blue, "to_id": boat}], **who)
    assert [node.id for node in graph.traverse(boat, user="alice").nodes] == [boat, blue]
    graph.end_edge(related.edges[0].id, reason="wrong", **who)
    end = graph.invalidate(
        blue, reason="painted", replacement={"content": "The Petrel is red."}, **who
    )
    assert end.replacement is not None
    assert [r.content for r in graph.history(blue, user="alice").revisions] == [
        "The Petrel is blue.",
        "The Petrel is red.",
    ]
    assert {node.type for node in graph.nodes(user="alice", page_size=1)} == {
        *("entity", "fact", "topic")
    }
    assert graph.search("Petrel", user="alice", mode="exact").nodes
    assert graph.nearest_topics("boats", user="alice").nodes
    assert graph.conflicts(user="alice").compared >= 0
    assert graph.analyze("The Petrel is green.", user="alice").store_as
    graph.set_field(boats, "mooring", "north", **who)
    assert graph.fields(boats, user="alice").fields[0].field == "mooring"
    assert graph.field(boats, "mooring", user="alice").history[0].value == "north"
    assert [*graph.communities(user="alice")] == []


def test_client_graph_merges_and_undoes_merge(client: Strandline) -> None:
    graph, who = client.graph, Who(user="alice")
    nodes = graph.add(
        [{"type": "entity", "name": name} for name in ("Petrel", "The Petrel")], **who
    )
    one, other = (node.id for node in nodes.nodes)
    assert graph.merge_proposals(user="alice").compared >= 0
    merge = graph.merge(from_id=other, into_id=one, **who)
    assert merge.into_id == one
    assert graph.undo_merge(merge.merge_id, **who).merge_id == merge.merge_id


def test_client_erases_events_sessions_and_users(service: HttpService) -> None:
    with service.client("acme", None, "read", "write", "erase") as client:
        event = client.add("The crane leans.", user="alice")
        client.add("It is red.", user="alice", session_id="crane")
        assert client.preview_erasure(participant="user:alice").events == 2
        erasure = client.erase_event(event.event_id)
        assert client.erase_event(event.event_id).erasure_id == erasure.erasure_id
        with pytest.raises(errors.GoneError):
            client.get(event.event_id, user="alice")
        assert client.erasure(erasure.erasure_id).receipt is None
        (listing,) = client.list_erasures(state="hidden", page_size=1)
        assert (listing.erasure_id, listing.counts) == (erasure.erasure_id, erasure.counts)
        (erased_id,) = client.erasures(event.scope_id, user="alice").erasures
        assert (erased_id.event_id, erased_id.n) == (event.event_id, 1)
        with client.session("crane", user="alice") as session:
            assert session.erase().counts["events"] == 1
        client.add("And gone.", user="alice")
        assert client.erase(participant="user:alice").counts["events"] == 1
        assert [*client.get_all(user="alice")] == []


def test_client_list_says_how_to_go_on_after_erasure(service: HttpService) -> None:
    with service.client("acme", None, "read", "write", "erase") as client:
        first, *_ = [client.add(f"Load {n}.", user="alice") for n in range(3)]
        events = client.get_all(user="alice", page_size=2)
        assert next(events).content == "Load 2."
        client.erase_event(first.event_id)
        with pytest.raises(errors.GoneError, match="list was iterated, call its verb again"):
            list(events)
        again = client.get_all(user="alice", page_size=2)
        assert [one.content for one in again] == ["Load 2.", "Load 1."]


def test_client_graph_exports_and_imports_files(service: HttpService, tmp_path: Path) -> None:
    file, progress = tmp_path / "graph.jsonl", list[tuple[int, int]]()
    with service.client() as client:
        assert client.graph.status(user="alice").nodes == {}
        long = {"type": "topic", "description": "x" * 1500}
        topics = [{**long, "name": f"Boats {n} {'x' * 450}"} for n in range(50)]
        for turn in range(12):  # more nodes than a page of the export
            names = [{**topic, "name": f"{turn} {topic['name']}"} for topic in topics]
            client.graph.add(names, user="alice", agent="helper")
        status = client.graph.status(user="alice")
        assert status.nodes["topic"].current == 600
        export = client.graph.export_file(file, user="alice")
        assert (file.stat().st_size, export.counts.nodes) == (export.bytes, 600)
        assert export.bytes > 1024 * 1024, "more than goes inline"
        assert [*tmp_path.iterdir()] == [file], "no draft is left"
        with pytest.raises(errors.NotFoundError):
            client.graph.export_file(tmp_path / "none", user="nobody", scope_id=UUID(int=7))
    with service.client("brill") as other:
        import_result = other.graph.import_file(
            file, progress=lambda sent_bytes, size: progress.append((sent_bytes, size))
        )
        assert (import_result.new_nodes, import_result.known_statements) == (600, 0)
        assert progress[-1] == (export.bytes, export.bytes)
        assert len(progress) > 1, "piece by piece"
        again = other.graph.import_file(file)
        assert (again.new_statements, again.known_statements) == (0, import_result.new_statements)
        assert other.graph.status(user="alice").nodes["topic"].current == 600
        small = tmp_path / "small.jsonl"
        lines = file.read_bytes().splitlines(keepends=True)
        small.write_bytes(b"".join(lines[:5]) + b"\xff\n")
        with pytest.raises(errors.InvalidFieldError, match="line 6"):
            other.graph.import_file(small)
        with pytest.raises(FileNotFoundError):
            other.graph.import_file(tmp_path / "none.jsonl")


def test_client_admin_manages_tenants_and_keys(service: HttpService) -> None:
    with service.client("acme", None, "operator") as operator:
        result = operator.admin.create_tenant("brill", appends_per_minute=50)
        assert result.limits.model_dump()["appends_per_minute"] == 50
        key = operator.admin.create_key("brill", user="alice", rights=["read", "write"])
        assert key.user == "user:alice"
        assert operator.admin.rotate_key("brill", key.key_id).old.key_id == key.key_id
        assert len([*operator.admin.keys("brill", page_size=1)]) == 2
        assert operator.admin.key("brill", key.key_id).revoked_at is None
        assert operator.admin.revoke_key("brill", key.key_id).revoked_at is not None
        assert "brill" in {tenant.tenant_id for tenant in operator.admin.tenants()}
        new_tenant = operator.admin.update_tenant("brill", appends_per_minute=None)
        assert new_tenant.limits.model_dump()["appends_per_minute"] is None
        assert operator.admin.tenant("brill").tenant_id == "brill"
        entered = operator.admin.add_certificate("brill", subject="CN=a")
        certificate = operator.admin.certificate("brill", entered.certificate_id)
        assert [certificate] == [*operator.admin.certificates("brill")]
        operator.admin.revoke_certificate("brill", entered.certificate_id)
        routes = {entry.route for entry in operator.admin.audit("brill", page_size=3)}
        assert "POST /api/v1/admin/tenants" in routes
        with pytest.raises(errors.ForbiddenError):
            operator.recall("x", user="alice")
    with service.client() as admin:
        assert [*admin.admin.jobs()] == [*admin.admin.snapshots()] == []
        assert admin.admin.topic_index().active_version == 0
        assert [*admin.admin.model_calls()] == [*admin.admin.communities()] == []
        assert "strandline" in admin.admin.metrics()
        assert admin.usage().quotas[0].name == "requests"
        assert admin.health().dependencies["database"] == "ok"
        assert admin.ping().status == "ok"
        assert admin.openapi()["openapi"] == "3.1.0"
        with pytest.raises(errors.NotFoundError, match="on whose behalf"):
            admin.admin.snapshot(7)


def test_client_errors_name_field_and_remedy(service: HttpService) -> None:
    with service.client() as client:
        with pytest.raises(errors.InvalidFieldError) as error:
            client.add("x")
        assert error.value.field == "participants"
        assert "user:alice" in str(error.value)
        client.add("x", user="alice", source_event_key="k")
        with pytest.raises(errors.KeyConflictError, match="use a new key"):
            client.add("y", user="alice", source_event_key="k")
    unauthorized = pytest.raises(errors.UnauthorizedError, match="STRANDLINE_API_KEY")
    with Strandline(service.url, "made up") as stranger, unauthorized:
        stranger.usage()
    elsewhere = Strandline(f"{service.url}/elsewhere", "x")
    with elsewhere as missing, pytest.raises(errors.RouteNotFoundError):
        missing.usage()


async def append_from_tasks(url: str, key: str) -> Counter[str]:
    """How often each event of 32 tasks is in the log, that used one client and one writer."""
    async with AsyncStrandline(url, key) as client:

        async def work(task: int) -> None:
            async with client.session(f"s-{task}", user="alice", agent="helper") as session:
                for n in range(EVENTS_EACH):
                    await session.add(f"task {task} says {n}")
                    await writer.add(f"task {task} writes {n}", user="alice")
                assert (await session.context()).text

        async with client.writer(max_pending=20) as writer:
            await asyncio.gather(*(work(task) for task in range(TASKS)))
        assert (writer.stored, writer.pending) == (TASKS * EVENTS_EACH, 0)
        return Counter([str(event.content) async for event in client.get_all(user="alice")])


def test_client_is_shared_by_32_tasks(service: HttpService) -> None:
    count = asyncio.run(append_from_tasks(service.url, service.gateway.key()))
    expected = {
        f"task {task} {verb} {n}"
        for task in range(TASKS)
        for n in range(EVENTS_EACH)
        for verb in ("says", "writes")
    }
    assert count == Counter(expected)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # a loop that ends takes them along
def test_client_async_serves_several_event_loops(
    service: HttpService,
) -> None:
    """As of a module whose function each call of a Lambda runs in a loop of its own."""
    client = AsyncStrandline(service.url, service.gateway.key())

    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def count() -> int:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await client.add("Hello.", user="alice")
        return len([event async for event in client.get_all(user="alice")])

    assert [asyncio.run(count()) for _ in range(3)] == [1, 2, 3]
    gc.collect()
    assert [loop() is None for loop in loops] == [True, True, False]  # nor are their connections
    with ThreadPoolExecutor(2) as threads:
        counts = [threads.submit(asyncio.run, count()) for _ in range(4)]
        assert max(one.result() for one in counts) == 7
    asyncio.run(client.close())

    async def block() -> int:
        with service.client() as blocking:
            return len(list(blocking.get_all(user="alice")))

    assert asyncio.run(block()) == 7
    gc.collect()  # here, so that no later test is told of them


async def use_async_verbs(url: str, key: str, file: Path) -> None:
    """One verb of each kind."""
    async with AsyncStrandline(url, key) as client:
        turn = await client.add_turn("Is it free?", "Yes.", user="alice", agent="helper")
        scope = turn.user.scope_id
        assert [e.seq async for e in client.events(scope, user="alice", page_size=1)] == [1, 2]
        assert (await client.upload(file, user="alice")).blob is not None
        nodes = await client.graph.add([{"type": "topic", "name": "Boats"}], user="alice")
        graph = file.with_name("graph.jsonl")
        assert (await client.graph.export_file(graph, user="alice")).counts.nodes == 1
        assert (await client.graph.import_file(graph)).known_statements == 1
        assert [n.id async for n in client.graph.nodes(user="alice")] == [nodes.nodes[0].id]
        assert (await client.admin.topic_index()).active_version == 0
        followed = client.events(scope, user="alice", after_seq=2, follow=True, interval=0.01)
        await client.add_turn("Still?", "Yes.", user="alice", agent="helper")
        assert [(await anext(followed)).seq, (await anext(followed)).seq] == [3, 4]
        async with client.session(user="alice", agent="helper", ends=True) as session:
            await session.add("Hello.")
        with pytest.raises(errors.NotFoundError):
            await client.get(nodes.nodes[0].event_id, user="nobody")


def test_client_async_performs_each_kind_of_verb(service: HttpService, tmp_path: Path) -> None:
    file = tmp_path / "note.txt"
    file.write_text("Ines.")
    key = service.gateway.key(rights=("read", "write", "admin"))
    asyncio.run(use_async_verbs(service.url, key, file))


def test_client_acts_retries_until_wait_ends(
    client: Strandline,
    service: HttpService,
    scratch_db: ScratchDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes_acts, "RETRY_SECONDS", 1)
    sona = client.find_sona("Harbour master").uuid
    scratch_db.rows(
        "insert into waits (tenant_id, function, expires_at)"
        " select 'acme', 'query', now() + interval '20 s' from generate_series(1, 2)"
    )
    start = time.monotonic()
    page = client.acts(sona, wait=2.5, user="alice")
    assert time.monotonic() - start >= 2.5
    assert not page.acts

    async def push_meanwhile() -> float:
        async with AsyncStrandline(service.url, service.gateway.key()) as other:
            event = await other.add("The buoy is out.", user="alice")
            waiting = asyncio.create_task(other.acts(sona, wait=20, user="alice"))
            await asyncio.sleep(0.5)
            await other.push_act(sona, event.event_id)
            began = time.monotonic()
            assert [act.event_id for act in (await waiting).acts] == [event.event_id]
            return time.monotonic() - began

    assert asyncio.run(push_meanwhile()) < 5
