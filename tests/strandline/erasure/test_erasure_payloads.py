"""Erased payloads, in a bucket with versions."""

import gc
import importlib
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import UUID

import pytest

from strandline.local.aws import LocalAws, make_local_client
from tests.strandline.erasure.erasure_calls import ALICE, ERASURES, erase, traces
from tests.support import Gateway, ScratchDatabase, Tell, user_message
from tests.uploads import age, cid_of, citing, objects, put, upload_file


@pytest.fixture(autouse=True)
def versioned_bucket(aws: LocalAws) -> Iterator[None]:
    """moto does not close the files of versions."""
    with closing(make_local_client("s3")) as s3:
        s3.put_bucket_versioning(Bucket=aws.bucket, VersioningConfiguration={"Status": "Enabled"})
    yield
    gc.collect()


def count_versions(aws: LocalAws, prefix: str = "") -> int:
    """How many versions and markers of deletions lie in the bucket under this prefix."""
    with closing(make_local_client("s3")) as s3:
        object_versions = s3.list_object_versions(Bucket=aws.bucket, Prefix=prefix)
    return len(object_versions.get("Versions", [])) + len(object_versions.get("DeleteMarkers", []))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_erasure_payload_goes_with_versions_once_unused(
    gateway: Gateway, scratch_db: ScratchDatabase, aws: LocalAws, eraser: str
) -> None:
    large = "zyxcanary payload " * 5000
    cid = cid_of(large.encode())

    def versions() -> int:
        return count_versions(aws, f"acme/{cid}")

    event_ids = [
        gateway.call("POST", "/api/v1/events", user_message(large), key=eraser).body["event_id"]
        for _ in range(2)
    ]
    stored_versions = versions()
    assert stored_versions >= 1
    erase(gateway, eraser, event_ids[0])
    gateway.run_job("eraser")
    assert versions() >= 1, "the other event cites it"
    erasure = erase(gateway, eraser, event_ids[1])
    query = {"participants": ALICE}
    assert gateway.call("GET", f"/file/{cid}", key=eraser, query=query).status == 404
    gateway.run_job("eraser")
    assert versions() >= 1, "an append under way may rely on it"
    scratch_db.rows("update blob_removals set marked_at = marked_at - interval '1 hour'")
    gateway.run_job("eraser", "acme")
    assert versions() == 0
    assert traces(scratch_db) == []
    path = f"{ERASURES}/{erasure['erasure_id']}"
    receipt = gateway.call("GET", path, key=eraser).body["receipt"]
    assert (receipt["counts"]["s3_payloads"], receipt["counts"]["s3_versions"]) == (
        1,
        stored_versions,
    )


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_erasure_payload_is_awaited_by_each_erasure(
    gateway: Gateway, scratch_db: ScratchDatabase, aws: LocalAws, eraser: str
) -> None:
    body = user_message("zyxcanary payload " * 5000)
    events = [gateway.call("POST", "/api/v1/events", body, key=eraser).body for _ in range(2)]
    erasures = [erase(gateway, eraser, event["event_id"]) for event in events]

    def states() -> set[str]:
        paths = [f"{ERASURES}/{one['erasure_id']}" for one in erasures]
        return {gateway.call("GET", path, key=eraser).body["state"] for path in paths}

    gateway.run_job("eraser")
    assert (states(), objects(aws, "acme/") == {}) == ({"hidden"}, False)
    scratch_db.rows("update blob_removals set marked_at = marked_at - interval '1 hour'")
    gateway.run_job("eraser", "acme")
    assert (states(), objects(aws, "acme/")) == ({"complete"}, {})


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_erasure_payload_of_swept_upload_leaves_no_version(
    gateway: Gateway, scratch_db: ScratchDatabase, aws: LocalAws, eraser: str
) -> None:
    """Nothing names it afterwards, so that no erasure would find it."""
    data = b"zyxcanary in a file"
    upload_file(gateway, eraser, data, mime_type="text/plain")
    assert gateway.call("POST", "/api/v1/events", citing(cid_of(data)), key=eraser).status == 201
    age(scratch_db)
    gateway.sweep()
    assert scratch_db.rows("select count(*) from uploads") == [(0,)]
    with closing(make_local_client("s3")) as s3:
        object_versions = s3.list_object_versions(Bucket=aws.bucket, Prefix="_uploads/")
    assert [object_versions.get(kind, []) for kind in ("Versions", "DeleteMarkers")] == [[], []]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_erasure_payload_uploaded_again_goes_too(
    gateway: Gateway, scratch_db: ScratchDatabase, aws: LocalAws, eraser: str
) -> None:
    """Its URL outlives it: the erasure is complete when that has expired."""
    data = b"zyxcanary in a file"
    upload = upload_file(gateway, eraser, data, mime_type="text/plain")
    event = gateway.call("POST", "/api/v1/events", citing(cid_of(data)), key=eraser).body
    version_count = count_versions(aws, "acme/") + count_versions(aws, "_uploads/")
    erasure = erase(gateway, eraser, event["event_id"])
    path = f"{ERASURES}/{erasure['erasure_id']}"
    for _ in range(2):
        gateway.run_job("eraser", "acme")
        scratch_db.rows("update blob_removals set marked_at = marked_at - interval '1 hour'")
    assert objects(aws) == {}
    assert gateway.call("GET", path, key=eraser).body["state"] == "hidden"
    ((due,),) = scratch_db.rows("select due_at > now() + interval '15 minutes' from erasures")
    assert due
    assert put(upload, data)[0] == 200, "the URL has not expired"
    scratch_db.rows("update erased_payloads set marked_at = marked_at - interval '17 minutes'")
    gateway.run_job("eraser", "acme")
    assert objects(aws) == {}
    body = gateway.call("GET", path, key=eraser).body
    assert body["state"] == "complete"
    counts = {name: n for name, n in body["receipt"]["counts"].items() if name.startswith("s3_")}
    assert counts == {"s3_payloads": 1, "s3_uploads": 1, "s3_versions": version_count + 1}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_erasure_payload_is_not_stored_again_by_replay(
    gateway: Gateway, scratch_db: ScratchDatabase, aws: LocalAws, eraser: str
) -> None:
    """Neither a large text, nor an upload that is gone: 410, and not what is wrong with it now."""
    data = b"zyxcanary in a file"
    upload_file(gateway, eraser, data, mime_type="text/plain")
    bodies = [
        user_message("zyxcanary payload " * 5000, source_event_key="large"),
        citing(cid_of(data), source_event_key="upload"),
    ]
    for body in bodies:
        reply_body = gateway.call("POST", "/api/v1/events", body, key=eraser).body
        erase(gateway, eraser, reply_body["event_id"])
    gateway.run_job("eraser")
    scratch_db.rows("update blob_removals set marked_at = marked_at - interval '1 hour'")
    gateway.run_job("eraser", "acme")
    assert objects(aws, "acme/") == {}
    assert objects(aws, "_uploads/") == {}
    for body in bodies:
        assert gateway.call("POST", "/api/v1/events", body, key=eraser).status == 410
    assert objects(aws, "acme/") == {}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_erasure_payload_exports_all_go_over_many_listings(
    gateway: Gateway, tell: Tell, aws: LocalAws, eraser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = importlib.import_module("functions.eraser.handler").resources.blobs
    for number in (*range(5), *range(3)):
        blobs.put_export("acme", UUID(int=number), b"zyxcanary")
    listing: Any = blobs.s3.list_object_versions
    refusal: Any = blobs._erase_versions_of_key

    def list_few(**more: Any) -> Any:
        return listing(**more, MaxKeys=2)

    def refuse(key: str) -> int | None:
        return None if key.endswith("4") else refusal(key)

    monkeypatch.setattr(blobs.s3, "list_object_versions", list_few)
    erasure = erase(gateway, eraser, tell(eraser, "Forget me.")["event_id"])
    with monkeypatch.context() as patch:
        patch.setattr(blobs, "_erase_versions_of_key", refuse)
        gateway.run_job("eraser", "acme")
    path = f"{ERASURES}/{erasure['erasure_id']}"
    assert gateway.call("GET", path, key=eraser).body["state"] == "hidden", "one is left"
    gateway.run_job("eraser", "acme")
    assert objects(aws, "_exports/") == {}
    body = gateway.call("GET", path, key=eraser).body
    assert body["state"] == "complete"
    assert (body["receipt"]["counts"]["s3_exports"], body["counts"]["s3_versions"]) == (5, 8)
