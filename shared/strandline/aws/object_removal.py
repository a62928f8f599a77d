"""An S3 bucket: how objects are removed from it, with and without versioning."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from strandline.aws import client_factory
from strandline.errors import Unavailable

if TYPE_CHECKING:
    from botocore.config import Config

MAX_KEYS_PER_CALL = 1000
"""The most objects that S3 deletes or lists in one call."""


def make_s3_client_config(read_timeout: int, attempts: int) -> "Config":
    """How a client calls S3: seconds to wait for an answer, and how often to try."""
    from botocore.config import Config

    # boto3 presigns with version 2 unless s3v4 is set.
    return Config(
        signature_version="s3v4",
        s3={"addressing_style": "path"},
        connect_timeout=2,
        read_timeout=read_timeout,
        retries={"total_max_attempts": attempts, "mode": "standard"},
    )


@dataclass(frozen=True)
class FileErasureCounts:
    """The outcome of erasing the files of one listing."""

    files: int
    versions: int
    """Of these files."""
    left: int
    """Files that could not be removed now."""


class Bucket:
    """One bucket. Methods raise Unavailable when S3 cannot be reached."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.s3 = client_factory.make_client("s3", make_s3_client_config(10, 2))

    def erase_all_versions(self, keys: Sequence[str]) -> dict[str, int]:
        """Remove objects with all their versions, whether they exist or not. Returns the keys that
        no longer exist, each with the number of its versions; in a bucket without versioning, where
        that number is unknown, with 1. Up to MAX_KEYS_PER_CALL; a bucket that keeps versions takes
        calls for each of them."""
        if not keys:
            return {}
        with translate_s3_errors():
            versioning = self.s3.get_bucket_versioning(Bucket=self.name)
        if "Status" in versioning:
            totals = {key: self._erase_versions_of_key(key) for key in keys}
            return {key: total for key, total in totals.items() if total is not None}
        return dict.fromkeys(self.delete_keys(keys), 1)

    def _erase_versions_of_key(self, key: str) -> int | None:
        """Remove all versions of an object, and the markers of its deletions. Returns how many
        versions; None where something is left."""
        total = 0
        while True:
            with translate_s3_errors():
                response = self.s3.list_object_versions(Bucket=self.name, Prefix=key)
                page = {
                    kind: [
                        {"Key": key, "VersionId": version["VersionId"]}
                        for version in response.get(kind, [])
                        if version["Key"] == key
                    ]
                    for kind in ("Versions", "DeleteMarkers")
                }
                versions = [*page["Versions"], *page["DeleteMarkers"]]
                if not versions:
                    return total
                result = self.s3.delete_objects(
                    Bucket=self.name, Delete={"Objects": versions, "Quiet": True}
                )
            if result.get("Errors"):
                return None
            total += len(page["Versions"])

    def erase_stored_before(self, prefix: str, before: datetime) -> Iterator[FileErasureCounts]:
        """Remove the objects under a prefix that were stored before `before`, with all their
        versions. Each step erases one listing of them and yields the outcome."""
        marker = dict[str, str]()
        while True:
            with translate_s3_errors():
                response = self.s3.list_object_versions(Bucket=self.name, Prefix=prefix, **marker)
            versions = (*response.get("Versions", []), *response.get("DeleteMarkers", []))
            keys = sorted({v["Key"] for v in versions if v["LastModified"] < before})
            version_counts = self.erase_all_versions(keys)
            remaining = 0 if version_counts else len(keys)
            yield FileErasureCounts(len(version_counts), sum(version_counts.values()), remaining)
            if version_counts:  # the next objects are now first in this listing
                continue
            if not response.get("IsTruncated"):
                return
            marker = {
                "KeyMarker": response["NextKeyMarker"],
                "VersionIdMarker": response["NextVersionIdMarker"],
            }

    def delete_stored_before(self, prefix: str, before: datetime) -> int:
        """Delete the objects under a prefix that were stored before `before`, up to
        MAX_KEYS_PER_CALL. Returns how many."""
        with translate_s3_errors():
            response = self.s3.list_objects_v2(Bucket=self.name, Prefix=prefix)
        objects = response.get("Contents", [])
        return len(self.delete_keys([o["Key"] for o in objects if o["LastModified"] < before]))

    def delete_keys(self, keys: Sequence[str]) -> list[str]:
        """Delete objects in one call. Returns the keys that do not exist any more."""
        if not keys:
            return []
        with translate_s3_errors():
            response = self.s3.delete_objects(
                Bucket=self.name,
                Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True},
            )
        remaining = {error.get("Key") for error in response.get("Errors", [])}
        return [key for key in keys if key not in remaining]

    def check(self) -> None:
        """Raise Unavailable when the bucket does not answer."""
        with translate_s3_errors():
            self.s3.head_bucket(Bucket=self.name)


@contextmanager
def translate_s3_errors() -> Generator[None]:
    """Raise Unavailable for every error of S3 or of the connection to it that the caller does not
    handle itself."""
    try:
        yield
    except client_factory.all_error_classes() as error:
        raise Unavailable("The payload store cannot be reached. Try again.") from error
