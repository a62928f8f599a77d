"""The local AWS: real boto3 and plain urllib against it, and what a restart finds."""

import base64
import hashlib
import os
import socket
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.config import Config  # pyright: ignore[reportMissingTypeStubs]
from botocore.exceptions import ClientError  # pyright: ignore[reportMissingTypeStubs]
from moto.s3.models import s3_backends
from moto.stepfunctions.parser.asl.utils.boto_client import boto_client_for

from strandline.aws.blobs import BlobStore
from strandline.local import s3_object_files
from strandline.local.aws import LocalAws, make_local_client
from strandline.local.lambda_context import ACCOUNT_ID
from strandline.local.s3_object_files import ObjectFolder

ONCE = Config(signature_version="s3v4", retries={"total_max_attempts": 1})
ODD_KEYS = ["tenant 1/ü+é%2F.~", ".", "..", "a", "a/b", "a/", "long/" + "é" * 500, "x" * 600, "+"]


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[LocalAws]:
    with LocalAws(tmp_path) as running:
        yield running


@pytest.fixture
def s3(aws: LocalAws) -> Iterator[Any]:
    with closing(make_local_client("s3", config=ONCE)) as result:
        yield result


def fetch(url: str, body: bytes | None = None, method: str | None = None) -> bytes:
    request = urllib.request.Request(url, body, method=method)  # noqa: S310 - loopback
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - loopback
        return answer.read()


def status_of(url: str, body: bytes | None = None, method: str | None = None) -> int:
    try:
        fetch(url, body, method)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    return 200


def content(s3: Any, bucket: str, key: str) -> bytes:
    with closing(s3.get_object(Bucket=bucket, Key=key)["Body"]) as body:
        return body.read()


def presign(s3: Any, aws: LocalAws, method: str, seconds: int = 60) -> str:
    place = {"Bucket": aws.bucket, "Key": "tenant/a b"}
    return s3.generate_presigned_url(method, Params=place, ExpiresIn=seconds)


def test_local_aws_object_is_file_before_acknowledgement(
    aws: LocalAws, s3: Any, tmp_path: Path
) -> None:
    s3.put_object(Bucket=aws.bucket, Key="tenant/cid é", Body=b"kept")
    file = tmp_path / "blobs" / aws.bucket / "tenant%2Fcid%20%C3%A9"
    assert file.read_bytes() == b"kept"
    s3.delete_object(Bucket=aws.bucket, Key="tenant/cid é")
    assert list(file.parent.iterdir()) == []


def test_local_aws_failed_write_is_not_acknowledged(
    aws: LocalAws, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(ObjectFolder, "write", full)
    with pytest.raises(ClientError, match="500"):
        s3.put_object(Bucket=aws.bucket, Key="k", Body=b"lost")
    with pytest.raises(ClientError, match="NoSuchKey"):
        s3.get_object(Bucket=aws.bucket, Key="k")


def test_local_aws_objects_survive_restart(tmp_path: Path) -> None:
    part = os.urandom(5 * 1024 * 1024)
    with LocalAws(tmp_path) as aws, closing(make_local_client("s3", config=ONCE)) as s3:
        where: dict[str, Any] = {"Bucket": aws.bucket}
        for key in ODD_KEYS:
            s3.put_object(**where, Key=key, Body=b"old")
            s3.put_object(**where, Key=key, Body=key.encode())
        s3.copy_object(**where, Key="copy", CopySource={"Bucket": aws.bucket, "Key": "a/b"})
        s3.put_object(**where, Key="gone", Body=b"x")
        s3.delete_objects(**where, Delete={"Objects": [{"Key": "gone"}]})
        upload = s3.create_multipart_upload(**where, Key="big")["UploadId"]
        tags = [
            s3.upload_part(**where, Key="big", UploadId=upload, PartNumber=n, Body=b)["ETag"]
            for n, b in ((1, part), (2, b"end"))
        ]
        parts = {"Parts": [{"PartNumber": n + 1, "ETag": tag} for n, tag in enumerate(tags)]}
        s3.complete_multipart_upload(**where, Key="big", UploadId=upload, MultipartUpload=parts)
        head = s3.head_object(**where, Key="a")
        assert content(s3, aws.bucket, "big") == part + b"end"
    with LocalAws(tmp_path) as aws, closing(make_local_client("s3", config=ONCE)) as s3:
        listing = s3.list_objects_v2(Bucket=aws.bucket)["Contents"]
        assert sorted(o["Key"] for o in listing) == sorted([*ODD_KEYS, "copy", "big"])
        assert all(content(s3, aws.bucket, key) == key.encode() for key in ODD_KEYS)
        assert content(s3, aws.bucket, "copy") == b"a/b"
        assert content(s3, aws.bucket, "big") == part + b"end"
        object_head = s3.head_object(Bucket=aws.bucket, Key="a")
        assert (object_head["ETag"], object_head["ContentLength"]) == (head["ETag"], 1)
        assert abs((object_head["LastModified"] - head["LastModified"]).total_seconds()) <= 1
        s3.delete_object(Bucket=aws.bucket, Key="a")
    assert "a" not in dict(ObjectFolder(tmp_path / "blobs" / "strandline-local").scan())


def test_local_aws_ignores_half_written_file(tmp_path: Path) -> None:
    folder = tmp_path / "blobs" / "strandline-local"
    folder.mkdir(parents=True)
    (folder / "+half").write_bytes(b"ha")
    with LocalAws(tmp_path) as aws, closing(make_local_client("s3")) as s3:
        assert s3.list_objects_v2(Bucket=aws.bucket)["KeyCount"] == 0
    assert list(folder.iterdir()) == []


@pytest.mark.proof
def test_local_aws_start_reads_no_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ObjectFolder(tmp_path / "blobs" / "strandline-local")
    folder.path("tenant/0").write_bytes(b"kept")
    for number in range(1, 10_000):  # links: the test is about finding files, not making them
        folder.path(f"tenant/{number}").hardlink_to(folder.path("tenant/0"))
    read: list[Path] = []
    really: Any = Path.open

    def open_counted(path: Path, *how: Any, **options: Any) -> Any:
        read.append(path)
        return really(path, *how, **options)

    monkeypatch.setattr(Path, "open", open_counted)
    with LocalAws(tmp_path) as aws, closing(make_local_client("s3")) as s3:
        assert not [path for path in read if path.is_relative_to(tmp_path)]
        assert content(s3, aws.bucket, "tenant/9999") == b"kept"
    assert folder.path("tenant/9999") in read


def test_local_aws_keeps_no_objects_in_memory(aws: LocalAws, s3: Any) -> None:
    s3.put_object(Bucket=aws.bucket, Key="k", Body=b"x")
    bucket: Any = s3_backends[ACCOUNT_ID]["aws"].buckets[aws.bucket]
    [contents] = bucket.keys.values()
    assert isinstance(contents._value_buffer, s3_object_files.ObjectFileReader)
    assert contents.instances_tracked.maxlen == 0


def test_local_aws_refuses_conditional_put_of_existing_object(aws: LocalAws, s3: Any) -> None:
    s3.put_object(Bucket=aws.bucket, Key="k", Body=b"first", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3.put_object(Bucket=aws.bucket, Key="k", Body=b"second", IfNoneMatch="*")
    assert content(s3, aws.bucket, "k") == b"first"


def put_to(url: str, body: bytes, **headers: str) -> tuple[int, str]:
    """A PUT with these headers; `_` stands for `-`."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, body, fields, method="PUT")  # noqa: S310 - loopback
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - loopback
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def sha256_of(body: bytes) -> str:
    return base64.b64encode(hashlib.sha256(body).digest()).decode()


def test_local_aws_refuses_body_with_wrong_checksum(aws: LocalAws, s3: Any) -> None:
    place = {"Bucket": aws.bucket, "Key": "k", "ChecksumSHA256": sha256_of(b"right")}
    url = s3.generate_presigned_url("put_object", Params=place)
    right = sha256_of(b"right")
    status, message = put_to(url, b"wrong", x_amz_checksum_sha256=right)
    assert (status, "<Code>BadDigest</Code>" in message) == (400, True)
    assert put_to(url, b"wrong", x_amz_checksum_sha256=sha256_of(b"wrong"))[0] == 403
    with pytest.raises(ClientError, match="BadDigest"):
        s3.put_object(**place, Body=b"wrong")
    assert s3.list_objects_v2(Bucket=aws.bucket)["KeyCount"] == 0
    for put in (
        lambda: put_to(url, b"right", x_amz_checksum_sha256=right),
        lambda: s3.put_object(**place, Body=b"right"),
    ):
        put()
        head = s3.head_object(Bucket=aws.bucket, Key="k", ChecksumMode="ENABLED")
        assert (head["ChecksumSHA256"], head["ContentLength"]) == (right, 5)
        s3.delete_object(Bucket=aws.bucket, Key="k")


def test_local_aws_refuses_body_of_unsigned_length(aws: LocalAws, s3: Any) -> None:
    place = {"Bucket": aws.bucket, "Key": "k", "ContentLength": 5}
    url = s3.generate_presigned_url("put_object", Params=place)
    for body in (b"four", b"sixsix", b""):
        assert put_to(url, body)[0] == 403
    assert put_to(url, b"fives")[0] == 200


def test_local_aws_refuses_truncated_body(aws: LocalAws, s3: Any) -> None:
    checksum = sha256_of(b"half")
    place = {"Bucket": aws.bucket, "Key": "k", "ContentLength": 9, "ChecksumSHA256": checksum}
    url = s3.generate_presigned_url("put_object", Params=place)
    path = url.removeprefix(aws.endpoint)
    host = urlsplit(aws.endpoint)
    with socket.create_connection((host.hostname, host.port), timeout=10) as connection:
        connection.sendall(
            f"PUT {path} HTTP/1.1\r\nHost: {host.netloc}\r\nContent-Length: 9\r\n"
            f"x-amz-checksum-sha256: {checksum}\r\n\r\nhalf".encode()
        )
        connection.shutdown(socket.SHUT_WR)
        assert b"400" in connection.recv(1000).partition(b"\r\n")[0]
    assert s3.list_objects_v2(Bucket=aws.bucket)["KeyCount"] == 0


def test_local_aws_conditional_put_race_has_one_winner(aws: LocalAws, s3: Any) -> None:
    place = {"Bucket": aws.bucket, "Key": "k", "IfNoneMatch": "*"}
    url = s3.generate_presigned_url("put_object", Params=place)
    bodies = [str(n).encode() * 50_000 for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        sending = [pool.submit(put_to, url, body, If_None_Match="*") for body in bodies]
    results = [answer.result()[0] for answer in sending]
    assert sorted(results) == [200] + [412] * 7
    assert content(s3, aws.bucket, "k") == bodies[results.index(200)]


def test_local_aws_conditional_copy_checks_etag(aws: LocalAws, s3: Any) -> None:
    source = {"Bucket": aws.bucket, "Key": "a b/é"}
    etag = s3.put_object(**source, Body=b"first")["ETag"]
    copy = {"Bucket": aws.bucket, "Key": "copy", "CopySource": source, "CopySourceIfMatch": etag}
    s3.copy_object(**copy)
    s3.put_object(**source, Body=b"second")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3.copy_object(**copy)
    s3.delete_object(**source)
    with pytest.raises(ClientError):
        s3.copy_object(**copy)
    assert content(s3, aws.bucket, "copy") == b"first"


def test_local_aws_upload_is_hashed_after_restart(tmp_path: Path) -> None:
    """Its checksum is not there any more: our own side reads the bytes."""
    upload, wrong = uuid.uuid4(), uuid.uuid4()
    digest = hashlib.sha256(b"bytes").digest()
    with LocalAws(tmp_path) as aws:
        put = BlobStore(aws.bucket).presign_put("acme", upload, 5, digest, 60)
        headers = {name.replace("-", "_"): value for name, value in put.headers.items()}
        assert put_to(put.url, b"bytes", **headers)[0] == 200
        with closing(make_local_client("s3", config=ONCE)) as s3:
            s3.put_object(Bucket=aws.bucket, Key=f"_uploads/acme/{wrong}", Body=b"other")
    with LocalAws(tmp_path) as aws:
        blobs, deadline = BlobStore(aws.bucket), time.monotonic() + 10
        uploaded_object = blobs.inspect_upload("acme", upload, deadline)
        assert uploaded_object is not None
        assert (uploaded_object.size, uploaded_object.sha256) == (5, digest)
        assert blobs.copy_upload_to_cid("acme", upload, "cid", uploaded_object.etag)
        assert blobs.read_text_prefix("acme", "cid", 3, "text/plain") == "byt"
        other = blobs.inspect_upload("acme", wrong, deadline)
        assert other is not None
        assert other.sha256 != digest
        assert blobs.erase_uploads("acme", [upload, wrong, uuid.uuid4()]) != []
        assert blobs.inspect_upload("acme", upload, deadline) is None
        assert not blobs.copy_upload_to_cid("acme", upload, "cid", uploaded_object.etag)


def test_local_aws_presigned_url_works_without_client(aws: LocalAws, s3: Any) -> None:
    # urllib calls the body a form, which moto alone would read away.
    fetch(presign(s3, aws, "put_object"), b"\x00a=b&c", "PUT")
    assert fetch(presign(s3, aws, "get_object")) == b"\x00a=b&c"


def test_local_aws_serves_only_signed_unexpired_urls(aws: LocalAws, s3: Any) -> None:
    s3.put_object(Bucket=aws.bucket, Key="tenant/a b", Body=b"private")
    good = presign(s3, aws, "get_object")
    bare = good.partition("?")[0]
    assert status_of(good) == 200
    assert status_of(bare) == 403
    assert status_of(presign(s3, aws, "get_object", seconds=-1)) == 403
    assert status_of(good.replace("X-Amz-Expires=60", "X-Amz-Expires=600")) == 403
    assert status_of(good.replace("a%20b", "other")) == 403
    assert status_of(good + "&versionId=null") == 403
    assert status_of(good, b"planted", "PUT") == 403
    assert status_of(f"{bare}?X-Amz-Signature=00") == 403
    assert status_of(f"{aws.endpoint}/") == 403
    assert status_of(f"{aws.endpoint}/moto-api/reset", b"", "POST") == 403
    assert content(s3, aws.bucket, "tenant/a b") == b"private"


def test_local_aws_refuses_other_access_key(aws: LocalAws) -> None:
    keys = {"aws_access_key_id": "strandline-local", "aws_secret_access_key": "guessed"}
    with (
        closing(make_local_client("s3", **keys)) as stranger,
        pytest.raises(ClientError, match="Denied"),
    ):
        stranger.list_objects_v2(Bucket=aws.bucket)
    other = {"aws_access_key_id": "another", "aws_secret_access_key": "key"}
    with closing(make_local_client("sqs", **other)) as stranger, pytest.raises(ClientError):
        stranger.receive_message(QueueUrl=aws.work_queue_url)


def test_local_aws_queue_has_dead_letter_queue(aws: LocalAws) -> None:
    with closing(make_local_client("sqs")) as sqs:
        queue_attributes = sqs.get_queue_attributes(
            QueueUrl=aws.work_queue_url, AttributeNames=["All"]
        )
        dead = sqs.get_queue_attributes(
            QueueUrl=aws.work_dead_letter_url, AttributeNames=["QueueArn"]
        )
    attributes = queue_attributes["Attributes"]
    assert attributes["VisibilityTimeout"] == "180"
    assert '"maxReceiveCount":3' in attributes["RedrivePolicy"].replace(" ", "")
    assert dead["Attributes"]["QueueArn"] in attributes["RedrivePolicy"]


def test_local_aws_signs_calls_of_moto_state_machines(aws: LocalAws) -> None:
    boto_client: Any = boto_client_for("us-east-1", "sqs")
    with closing(boto_client) as sqs:
        assert aws.work_queue_url in sqs.list_queues()["QueueUrls"]


def test_local_aws_sets_and_restores_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "a-real-account")
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", "http://elsewhere.invalid")
    before = dict(os.environ)
    with LocalAws(tmp_path) as aws, closing(make_local_client("sqs")) as sqs:
        assert os.environ["AWS_ENDPOINT_URL"] == aws.endpoint
        assert sqs.list_queues()["QueueUrls"]
    assert dict(os.environ) == before
