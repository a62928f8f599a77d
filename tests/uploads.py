"""What the tests of uploads share: a client without any SDK, and what lies in the bucket."""

import hashlib
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from multiformats import CID, multihash

from strandline.local.aws import LocalAws, make_local_client
from tests.support import Gateway, ScratchDatabase, user_message

EVENTS_PATH, BATCH, UPLOADS = "/api/v1/events", "/api/v1/events/batch", "/api/v1/uploads"


def cid_of(data: bytes) -> str:
    """A payload's CID by the implementation that is not ours."""
    return str(CID("base32", 1, "raw", multihash.digest(data, "sha2-256")))


def asking(data: bytes, **more: object) -> dict[str, object]:
    """The request for an upload of these bytes."""
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), **more}


def begin(gateway: Gateway, key: str, data: bytes, **more: object) -> Any:
    """Begin an upload of these bytes; its answer."""
    reply = gateway.call("POST", UPLOADS, asking(data, **more), key=key)
    assert reply.status == 201, reply.text
    return reply.body


def put(
    upload: Mapping[str, Any], data: bytes, headers: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Send the bytes with the headers that were given, or with others; status and body."""
    url = urlsplit(str(upload["url"]))
    with closing(HTTPConnection(url.hostname or "", url.port or 80, timeout=10)) as connection:
        connection.request(
            upload["method"], f"{url.path}?{url.query}", data, dict(headers or upload["headers"])
        )
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def upload_file(gateway: Gateway, key: str, data: bytes, **more: object) -> Any:
    """Begin an upload and put it there; what the beginning answered."""
    upload = begin(gateway, key, data, **more)
    assert put(upload, data)[0] == 200
    return upload


def citing(cid: str, *who: str, **more: object) -> dict[str, object]:
    """An event that cites a payload."""
    body = {**user_message("", *who, **more), "blob": {"cid": cid}}
    del body["content"]
    return body


def objects(aws: LocalAws, prefix: str = "") -> dict[str, bytes]:
    """What lies in the bucket under this prefix."""
    with closing(make_local_client("s3")) as s3:
        results: dict[str, bytes] = {}
        objects_v2 = s3.list_objects_v2(Bucket=aws.bucket, Prefix=prefix)
        for entry in objects_v2.get("Contents", []):
            with closing(s3.get_object(Bucket=aws.bucket, Key=entry["Key"])["Body"]) as body:
                results[entry["Key"]] = body.read()
        return results


def put_unchecked(aws: LocalAws, key: str, data: bytes) -> None:
    """Put an object as into a store that verifies nothing."""
    with closing(make_local_client("s3")) as s3:
        s3.put_object(Bucket=aws.bucket, Key=key, Body=data)


def pending_key(tenant: str, upload: Mapping[str, Any]) -> str:
    """Where an upload lies until it is cited."""
    return f"_uploads/{tenant}/{upload['upload_id']}"


def age(base: ScratchDatabase, upload_id: str | None = None) -> None:
    """Let the time of one upload, or of all, be over."""
    base.rows(
        "update uploads set created_at = now() - interval '2 days',"
        " remove_at = now() - interval '1 second' where %s::uuid is null or upload_id = %s::uuid",
        upload_id,
        upload_id,
    )
