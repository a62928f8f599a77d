"""`make teardown STACK=strandline-dev`: lists what a deleted stack left in the account, by the tag
that every resource of a stack has. With DELETE=1 it deletes all of it, for good: payloads,
settings, backups. Of a stack that is there it names the clusters that a restore left, which keep
CloudFormation from deleting the stack, and the snapshots, which no deployment deletes."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from infra.account_session import open_account_session, read_error_code

type MakeClient = Callable[[str], Any]
KEY_DAYS = 30
"""Days until a key is gone, in which its deletion can be cancelled."""


def _delete_cluster(make_client: MakeClient, name: str) -> None:
    """With its instances, and against its protection: a restore protects the old one."""
    rds = make_client("rds")
    (cluster,) = rds.describe_db_clusters(DBClusterIdentifier=name)["DBClusters"]
    rds.modify_db_cluster(DBClusterIdentifier=name, DeletionProtection=False, ApplyImmediately=True)
    for member in cluster["DBClusterMembers"]:
        rds.delete_db_instance(
            DBInstanceIdentifier=member["DBInstanceIdentifier"], SkipFinalSnapshot=True
        )
    rds.delete_db_cluster(DBClusterIdentifier=name, SkipFinalSnapshot=True)


def _empty_and_delete_bucket(make_client: MakeClient, name: str) -> None:
    s3 = make_client("s3")
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=name):
        entries = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
        objects = [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in entries]
        if objects:
            failed = s3.delete_objects(Bucket=name, Delete={"Objects": objects}).get("Errors")
            if failed:
                raise RuntimeError(f"{failed[0]['Code']}: {len(failed)} objects stay in {name}")
    s3.delete_bucket(Bucket=name)


def _schedule_secret_deletion(make_client: MakeClient, arn: str) -> None:
    make_client("secretsmanager").delete_secret(SecretId=arn)  # after 30 days, as AWS has it


def _delete_snapshot(make_client: MakeClient, name: str) -> None:
    make_client("rds").delete_db_cluster_snapshot(DBClusterSnapshotIdentifier=name)


def _schedule_key_deletion(make_client: MakeClient, key_id: str) -> None:
    make_client("kms").schedule_key_deletion(KeyId=key_id, PendingWindowInDays=KEY_DAYS)


def _delete_log_group(make_client: MakeClient, name: str) -> None:
    make_client("logs").delete_log_group(logGroupName=name)


_CLUSTER = "rds:cluster"
_SNAPSHOT = "rds:cluster-snapshot"
_LEFT_BESIDE: Mapping[str, str] = {
    _CLUSTER: "by a restore; it keeps the stack's subnets, so remove it before "
    "(docs/upgrade.md, step 8 of the drill)",
    _SNAPSHOT: "a snapshot of this name's stack, by hand or by a deployment that was rolled back",
}
"""What may stand beside a stack that is there, and why."""
_REMOVERS: Mapping[str, Callable[[MakeClient, str], None]] = {
    _CLUSTER: _delete_cluster,
    _SNAPSHOT: _delete_snapshot,
    "s3": _empty_and_delete_bucket,
    "secretsmanager:secret": _schedule_secret_deletion,
    "logs:log-group": _delete_log_group,
    # Last: it encrypts what is above.
    "kms:key": _schedule_key_deletion,
}
"""What may stay, by the kind in its ARN, in the order in which it is deleted."""
_ABSENCE_CODES = {
    *("DBClusterNotFoundFault", "DBClusterSnapshotNotFoundFault", "NoSuchBucket"),
    *("NotFoundException", "ResourceNotFoundException"),
}
"""How services say that there is no such resource."""


def find_left_behind(
    make_client: MakeClient, stack: str, kinds: Sequence[str] = (*_REMOVERS,)
) -> Sequence[tuple[str, str, str]]:
    """What has the stack's tag: kind, name as its service takes it, and ARN. What goes by itself
    is left out: automated snapshots, a key or a secret that is to be deleted already."""
    resources = _list_tagged_resources(make_client, stack)
    return sorted(
        (one for one in resources if one[0] in kinds and not _is_ending(make_client, *one[:2])),
        key=lambda one: (kinds.index(one[0]), one[2]),
    )


def find_left_beside(make_client: MakeClient, stack: str) -> Sequence[tuple[str, str]]:
    """Kind and ARN of clusters and snapshots with the tag of a stack that is there, and that are
    not the stack's own: the cluster before a restore, the one from which its snapshot was taken,
    and the snapshot that a first deployment left when it was rolled back."""
    pages = make_client("cloudformation").get_paginator("list_stack_resources")
    own = {
        str(one.get("PhysicalResourceId"))
        for page in pages.paginate(StackName=stack)
        for one in page["StackResourceSummaries"]
    }
    return [
        (kind, arn)
        for kind, name, arn in find_left_behind(make_client, stack, (*_LEFT_BESIDE,))
        if name not in own
    ]


def _list_tagged_resources(make_client: MakeClient, stack: str) -> list[tuple[str, str, str]]:
    pages = make_client("resourcegroupstaggingapi").get_paginator("get_resources")
    tag = {"Key": "strandline:stack", "Values": [stack]}
    arns = [
        str(one["ResourceARN"])
        for page in pages.paginate(TagFilters=[tag])
        for one in page["ResourceTagMappingList"]
    ]
    return [(*_split_arn(arn), arn) for arn in arns]


def delete_left_behind(
    make_client: MakeClient, found: Sequence[tuple[str, str, str]]
) -> Iterator[str]:
    """Delete each; gives a line of each, also of one that stays."""
    for kind, name, arn in found:
        try:
            _REMOVERS[kind](make_client, name)
        except (ClientError, RuntimeError) as error:
            is_gone = isinstance(error, ClientError) and read_error_code(error) in _ABSENCE_CODES
            if not is_gone:
                yield f"FAILED  {arn}: {error}"
                continue
        yield f"gone    {arn}"


def stack_exists(make_client: MakeClient, stack: str) -> bool:
    """Whether CloudFormation has the stack."""
    try:
        make_client("cloudformation").describe_stacks(StackName=stack)
    except ClientError as error:
        if read_error_code(error) != "ValidationError":
            raise
        return False
    return True


def _split_arn(arn: str) -> tuple[str, str]:
    """The kind of a resource, and the name by which its service knows it."""
    _, _, service, _, _, resource = arn.split(":", 5)
    if service == "s3":
        return "s3", resource
    kind, _, name = resource.replace("/", ":", 1).partition(":")
    name = resource.partition(":")[2] if service in ("rds", "logs") else name
    return f"{service}:{kind}", arn if service == "secretsmanager" else name


def _is_ending(make_client: MakeClient, kind: str, name: str) -> bool:
    """Whether it goes by itself, or is gone: for hours the tags still name what was deleted."""
    try:
        if kind == _CLUSTER:
            make_client("rds").describe_db_clusters(DBClusterIdentifier=name)
        elif kind == _SNAPSHOT:
            if name.startswith("rds:"):
                return True  # automated: it goes with its cluster
            make_client("rds").describe_db_cluster_snapshots(DBClusterSnapshotIdentifier=name)
        elif kind == "secretsmanager:secret":
            return "DeletedDate" in make_client("secretsmanager").describe_secret(SecretId=name)
        elif kind == "kms:key":
            state = make_client("kms").describe_key(KeyId=name)["KeyMetadata"]["KeyState"]
            return state == "PendingDeletion"
    except ClientError as error:
        if read_error_code(error) not in _ABSENCE_CODES:
            raise
        return True
    return False


def main(arguments: Sequence[str] | None = None) -> int:
    """List what is left, or delete it. Returns 1 if something could not be deleted, 2 if the stack
    is still there."""
    parser = argparse.ArgumentParser(prog="make teardown", description=__doc__)
    parser.add_argument("stack", help="the name of the deleted stack")
    parser.add_argument("--delete", action="store_true", help="delete all that is listed, for good")
    options = parser.parse_args(arguments)
    try:
        _, make_client = open_account_session()
        if stack_exists(make_client, options.stack):
            sys.stderr.write(f"strandline: {options.stack} is there: npx cdk destroy it first\n")
            sys.stdout.writelines(
                f"left    {arn}: {_LEFT_BESIDE[kind]}\n"
                for kind, arn in find_left_beside(make_client, options.stack)
            )
            return 2
        resources = find_left_behind(make_client, options.stack)
        if not options.delete:
            sys.stdout.writelines(f"left    {arn}\n" for *_, arn in resources)
            sys.stdout.write(f"{len(resources)} left; DELETE=1 deletes them for good\n")
            return 0
        lines = [*delete_left_behind(make_client, resources)]
    except (ValueError, ClientError, BotoCoreError) as error:
        sys.stderr.write(f"strandline: {error}\n")
        return 1
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return int(any(line.startswith("FAILED") for line in lines))


if __name__ == "__main__":
    sys.exit(main())
