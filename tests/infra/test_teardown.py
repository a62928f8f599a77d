"""What a deleted stack leaves, and that it goes: in the order that AWS accepts, all versions of the
payloads with it, and nothing of another stack."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra import teardown
from infra.account_session import AccountSession
from infra.teardown import delete_left_behind, find_left_behind, stack_exists

SECRET = "arn:aws:secretsmanager:eu-west-1:1:secret:Secrets-a1b2"
ARNS = (
    "arn:aws:kms:eu-west-1:1:key/gone",
    "arn:aws:kms:eu-west-1:1:key/k-1",
    "arn:aws:lambda:eu-west-1:1:function:strandline-dev-query:1",
    "arn:aws:s3:::payloads",
    SECRET,
    "arn:aws:logs:eu-west-1:1:log-group:/aws/rds/cluster/strandline-dev/postgresql",
    "arn:aws:rds:eu-west-1:1:cluster-snapshot:strandline-dev-snapshot-1",
    "arn:aws:rds:eu-west-1:1:cluster:strandline-dev",
    "arn:aws:secretsmanager:eu-west-1:1:secret:Ending-c3d4",
    "arn:aws:rds:eu-west-1:1:cluster-snapshot:rds:strandline-dev-2026-12-01",
    # Gone, though the tags still name them.
    "arn:aws:kms:eu-west-1:1:key/former",
    "arn:aws:secretsmanager:eu-west-1:1:secret:Former-e5f6",
    "arn:aws:rds:eu-west-1:1:cluster-snapshot:former-snapshot",
    "arn:aws:rds:eu-west-1:1:cluster:former",
)
LEFT = [
    ("rds:cluster", "strandline-dev", ARNS[7]),
    ("rds:cluster-snapshot", "strandline-dev-snapshot-1", ARNS[6]),
    ("s3", "payloads", ARNS[3]),
    ("secretsmanager:secret", SECRET, SECRET),
    ("logs:log-group", "/aws/rds/cluster/strandline-dev/postgresql", ARNS[5]),
    ("kms:key", "k-1", ARNS[1]),
]


class Account:
    """What it is asked, in its order; pages and versions as AWS gives them."""

    def __init__(self, **errors: str) -> None:
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.errors = errors
        self.cluster = "strandline-dev-1a2b3c4d"
        """Of the stack, as long as it is there."""
        self.versions = [{"Key": f"acme/{n}", "VersionId": f"v{n}"} for n in range(3)]

    def make_client(self, service: str) -> Any:
        del service
        return self

    def get_paginator(self, operation: str) -> Any:
        account = self

        class Pages:
            def paginate(self, **parameters: Any) -> Iterator[Mapping[str, Any]]:
                if operation == "get_resources":
                    assert parameters["TagFilters"] == [
                        {"Key": "strandline:stack", "Values": ["strandline-dev"]}
                    ]
                    yield {"ResourceTagMappingList": [{"ResourceARN": a} for a in ARNS[:4]]}
                    yield {"ResourceTagMappingList": [{"ResourceARN": a} for a in ARNS[4:]]}
                elif operation == "list_stack_resources":
                    assert parameters == {"StackName": "strandline-dev"}
                    yield {"StackResourceSummaries": [{"LogicalResourceId": "Failed"}]}
                    yield {"StackResourceSummaries": [{"PhysicalResourceId": account.cluster}]}
                else:
                    yield {"Versions": account.versions[:2]}
                    yield {"DeleteMarkers": account.versions[2:]}
                    yield {}

        return Pages()

    def describe_key(self, **key: str) -> Mapping[str, Any]:
        self.find("NotFoundException", key["KeyId"])
        state = "PendingDeletion" if key["KeyId"] == "gone" else "Enabled"
        return {"KeyMetadata": {"KeyState": state}}

    def find(self, code: str, name: str) -> None:
        if "former" in name.lower():
            raise ClientError({"Error": {"Code": code, "Message": "gone"}}, "describe")

    def describe_db_cluster_snapshots(self, **snapshot: str) -> Mapping[str, Any]:
        self.find("DBClusterSnapshotNotFoundFault", snapshot["DBClusterSnapshotIdentifier"])
        return {}

    def describe_secret(self, **secret: str) -> Mapping[str, Any]:
        self.find("ResourceNotFoundException", secret["SecretId"])
        return {"DeletedDate": "2026-12-01"} if "Ending" in secret["SecretId"] else {}

    def describe_db_clusters(self, **cluster: str) -> Mapping[str, Any]:
        self.find("DBClusterNotFoundFault", cluster["DBClusterIdentifier"])
        assert cluster == {"DBClusterIdentifier": "strandline-dev"}
        return {"DBClusters": [{"DBClusterMembers": [{"DBInstanceIdentifier": "old-look"}]}]}

    def __getattr__(self, operation: str) -> Callable[..., Mapping[str, Any]]:
        def call(**parameters: Any) -> Mapping[str, Any]:
            self.calls.append((operation, parameters))
            if operation in self.errors:
                code, message = self.errors[operation].split(": ")
                raise ClientError({"Error": {"Code": code, "Message": message}}, operation)
            return {}

        return call


def test_teardown_lists_what_stays_by_tag() -> None:
    """Neither what goes by itself or is gone, nor a key or secret that is ending already."""
    account = Account()
    assert find_left_behind(account.make_client, "strandline-dev") == LEFT
    assert account.calls == []


def test_teardown_deletes_every_version_and_key_last() -> None:
    account = Account()
    lines = list(delete_left_behind(account.make_client, LEFT))
    assert lines == [f"gone    {arn}" for *_, arn in LEFT]
    removed = [o for n, p in account.calls if n == "delete_objects" for o in p["Delete"]["Objects"]]
    assert removed == account.versions
    assert [name for name, _ in account.calls if name != "delete_objects"] == [
        *("modify_db_cluster", "delete_db_instance", "delete_db_cluster"),
        *("delete_db_cluster_snapshot", "delete_bucket", "delete_secret", "delete_log_group"),
        "schedule_key_deletion",
    ]
    assert account.calls[-1][1] == {"KeyId": "k-1", "PendingWindowInDays": 30}


def test_teardown_says_what_stays_and_goes_on() -> None:
    """What is gone by now does not count as a failure."""
    account = Account(
        delete_bucket="AccessDenied: no", delete_log_group="ResourceNotFoundException: gone"
    )
    lines = list(delete_left_behind(account.make_client, LEFT))
    assert [line[:6] for line in lines] == ["gone  "] * 2 + ["FAILED"] + ["gone  "] * 3


@pytest.mark.parametrize(
    ("account", "there"),
    [
        (Account(), True),
        (Account(describe_stacks="ValidationError: Stack does not exist"), False),
    ],
)
def test_teardown_knows_stack_that_is_there(account: Account, there: bool) -> None:
    assert stack_exists(account.make_client, "strandline-dev") is there


def test_teardown_does_not_take_refusal_for_absence() -> None:
    account = Account(describe_stacks="AccessDenied: no")
    with pytest.raises(ClientError):
        stack_exists(account.make_client, "strandline-dev")


@pytest.mark.parametrize(
    ("cluster", "left"),
    [
        # The stack's, after a restore: the old one is left.
        ("strandline-dev-1a2b3c4d", [ARNS[7], ARNS[6]]),
        ("strandline-dev", [ARNS[6]]),
    ],
)
def test_teardown_names_cluster_and_snapshot_beside_stack(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cluster: str, left: object
) -> None:
    """CloudFormation cannot delete the subnets of an old cluster, and nothing deletes a snapshot.
    Neither is deleted here: the stack may be meant to stay."""
    account = Account()
    account.cluster = cluster
    session = AccountSession("eu-west-1", account.make_client)
    monkeypatch.setattr(teardown, "open_account_session", lambda: session)
    assert teardown.main(["strandline-dev", "--delete"]) == 2
    output = capsys.readouterr()
    assert [line.split()[1].rstrip(":") for line in output.out.splitlines()] == left
    assert "strandline-dev is there" in output.err
    assert [name for name, _ in account.calls] == ["describe_stacks"]
