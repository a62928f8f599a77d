"""Payloads in S3 under `<tenant>/<cid>`: put by content, fetched by a short-lived URL."""

from collections.abc import Generator
from contextlib import contextmanager
from urllib.parse import quote

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from strandline import boto
from strandline.errors import Unavailable

# s3v4 must be asked for: boto3 still presigns with version 2 otherwise.
_CONFIG = Config(
    signature_version="s3v4",
    s3={"addressing_style": "path"},
    connect_timeout=2,
    read_timeout=10,
    retries={"total_max_attempts": 2, "mode": "standard"},
)


class Blobs:
    """One bucket's payloads. Raises Unavailable when the store cannot be reached."""

    def __init__(self, bucket: str) -> None:
        self._bucket = bucket
        self._s3 = boto.client("s3", _CONFIG)

    def put(self, tenant: str, cid: str, data: bytes) -> None:
        """Store a payload under its own address; doing it twice changes nothing."""
        with _reachable():
            self._s3.put_object(Bucket=self._bucket, Key=f"{tenant}/{cid}", Body=data)

    def head_text(self, tenant: str, cid: str, size: int) -> str:
        """The first `size` bytes of a payload as text; a character cut in half is dropped."""
        with _reachable():
            answer = self._s3.get_object(
                Bucket=self._bucket, Key=f"{tenant}/{cid}", Range=f"bytes=0-{size - 1}"
            )
            return answer["Body"].read().decode("utf-8", "ignore")

    def url(
        self, tenant: str, cid: str, mime_type: str | None, name: str | None, seconds: int
    ) -> str:
        """A URL that fetches this payload for `seconds`. A browser saves it and never runs it."""
        params = {
            "Bucket": self._bucket,
            "Key": f"{tenant}/{cid}",
            "ResponseContentType": mime_type or "application/octet-stream",
            "ResponseContentDisposition": _attachment(name or cid),
        }
        return self._s3.generate_presigned_url("get_object", Params=params, ExpiresIn=seconds)

    def check(self) -> None:
        """Raise Unavailable when the bucket does not answer."""
        with _reachable():
            self._s3.head_bucket(Bucket=self._bucket)


def _attachment(name: str) -> str:
    """A Content-Disposition that any name can stand in (RFC 6266)."""
    return f"attachment; filename*=UTF-8''{quote(name, safe='')}"


@contextmanager
def _reachable() -> Generator[None]:
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise Unavailable("The payload store cannot be reached. Try again.") from error
