"""Storage beside the database: payloads, queues, secrets, and the key that encrypts them."""

from typing import cast

from aws_cdk import ArnFormat, Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.nag_suppressions import acknowledge_nag_findings
from infra.settings import StackSettings
from strandline.function_specs import FUNCTIONS

MAX_RECEIVES = 5
"""How often a message may be received before it becomes a dead letter: the value of Lambda's guide,
so that throttling alone makes no dead letters."""
_NONCURRENT_DAYS = 30
"""How long a removed payload has a version at least; never less than the database can go back."""
REQUEST_METRICS = "requests"
"""The bucket's filter of request metrics, which has all requests."""
_RETAIN = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
"""Retains all but the resources of a failed first deployment, which are still empty."""
_TIMEOUTS = {fn.name: fn.timeout for fn in FUNCTIONS}


class Storage(Construct):
    """Bucket, queues and secrets. Each requires TLS, and is encrypted with the customer-managed key
    if there is one."""

    def __init__(self, scope: Construct, id: str, settings: StackSettings) -> None:
        super().__init__(scope, id)
        self.key = self._find_or_create_encryption_key(settings)
        self.bucket = self._create_payload_bucket(settings)
        self.work_queue, self.work_dead_letters = self._create_queue_with_dead_letters(
            "WorkQueue", _TIMEOUTS["worker"]
        )
        self.job_queue, self.job_dead_letters = self._create_queue_with_dead_letters(
            "JobQueue", _TIMEOUTS["scheduler"]
        )
        self.secrets = self._create_settings_secret()
        self.first_key = self._create_first_key_secret()

    def _find_or_create_encryption_key(self, settings: StackSettings) -> kms.IKey | None:
        if isinstance(settings.key, str):
            return kms.Key.from_key_arn(self, "Key", settings.key)
        if not settings.key:
            return None
        key = kms.Key(
            self,
            "Key",
            description=f"Encrypts the data of {settings.stack_name}",
            enable_key_rotation=True,
            removal_policy=_RETAIN,  # backups cannot be read without it
        )
        stack = Stack.of(self)
        write_logs = iam.PolicyStatement(
            actions=[
                *("kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*"),
                "kms:DescribeKey",
            ],
            resources=["*"],
            conditions={
                "ArnLike": {
                    "kms:EncryptionContext:aws:logs:arn": stack.format_arn(
                        service="logs",
                        resource="log-group",
                        resource_name="*",
                        arn_format=ArnFormat.COLON_RESOURCE_NAME,
                    )
                }
            },
        )
        write_logs.add_service_principal(f"logs.{stack.region}.amazonaws.com")
        key.add_to_resource_policy(write_logs)
        # The parameter names differ from the interface's, which matters to pyright but not to jsii.
        return cast(kms.IKey, key)

    def _create_payload_bucket(self, settings: StackSettings) -> s3.Bucket:
        cors_rule = s3.CorsRule(
            allowed_methods=[s3.HttpMethods.GET, s3.HttpMethods.PUT],
            allowed_origins=settings.cors_origins,
            allowed_headers=["*"],
        )
        bucket = s3.Bucket(
            self,
            "Payloads",
            encryption=s3.BucketEncryption.KMS if self.key else s3.BucketEncryption.S3_MANAGED,
            encryption_key=self.key,
            bucket_key_enabled=True if self.key else None,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            versioned=True,
            metrics=[s3.BucketMetrics(id=REQUEST_METRICS)],
            cors=[cors_rule] if settings.cors_origins else None,
            lifecycle_rules=self._make_lifecycle_rules(settings),
            removal_policy=_RETAIN,
        )
        acknowledge_nag_findings(
            bucket,
            {
                "S1": "Every access to a payload is a request that the service logs and audits. "
                "CloudTrail's data events are available for a record of S3 itself."
            },
        )
        return bucket

    def _make_lifecycle_rules(self, settings: StackSettings) -> list[s3.LifecycleRule]:
        """Removes what the jobs should have removed, if they did not."""
        grace = -(-settings.service_settings.upload_grace_seconds // 86_400)
        return [
            s3.LifecycleRule(
                id="uploads that nobody cites",
                prefix="_uploads/",
                expiration=Duration.days(grace + 1),
                noncurrent_version_expiration=Duration.days(1),
            ),
            s3.LifecycleRule(
                id="exports of graphs",
                prefix="_exports/",
                expiration=Duration.days(2),
                noncurrent_version_expiration=Duration.days(1),
            ),
            s3.LifecycleRule(
                id="lists of jobs",
                prefix="_jobs/",
                expiration=Duration.days(7),
                noncurrent_version_expiration=Duration.days(1),
            ),
            s3.LifecycleRule(
                id="removed and unfinished",
                abort_incomplete_multipart_upload_after=Duration.days(1),
                noncurrent_version_expiration=Duration.days(
                    max(_NONCURRENT_DAYS, settings.backup_days + 1)
                ),
                expired_object_delete_marker=True,
            ),
        ]

    def _create_queue_with_dead_letters(
        self, name: str, timeout: int
    ) -> tuple[sqs.Queue, sqs.Queue]:
        """A queue for a function of this timeout, and its dead-letter queue."""
        encryption = sqs.QueueEncryption.KMS if self.key else sqs.QueueEncryption.SQS_MANAGED
        dead_letters = sqs.Queue(
            self,
            f"{name}DeadLetters",
            encryption=encryption,
            encryption_master_key=self.key,
            enforce_ssl=True,
            retention_period=Duration.days(14),
        )
        queue = sqs.Queue(
            self,
            name,
            encryption=encryption,
            encryption_master_key=self.key,
            enforce_ssl=True,
            visibility_timeout=Duration.seconds(6 * timeout),
            dead_letter_queue=sqs.DeadLetterQueue(
                queue=dead_letters, max_receive_count=MAX_RECEIVES
            ),
        )
        return queue, dead_letters

    def _create_settings_secret(self) -> secretsmanager.Secret:
        """The secret settings, as one JSON object. An operator may add fields."""
        secret = secretsmanager.Secret(
            self,
            "Secrets",
            description="Strandline's secret settings, by their names in lower case",
            encryption_key=self.key,
            generate_secret_string=secretsmanager.SecretStringGenerator(
                secret_string_template="{}",  # noqa: S106
                generate_string_key="key_secret",
                password_length=64,
                exclude_punctuation=True,
            ),
            removal_policy=_RETAIN,  # without it no API key of a restored database is valid
        )
        reason = "Every API key contains a MAC under key_secret: a rotation would revoke all keys."
        acknowledge_nag_findings(secret, {"SMG4": reason})
        return secret

    def _create_first_key_secret(self) -> secretsmanager.Secret:
        """The secret for the operator's key. Empty until the first deployment writes it."""
        secret = secretsmanager.Secret(
            self,
            "FirstKey",
            description="The operator's first API key, put here by the first deployment",
            encryption_key=self.key,
        )
        cfn = secret.node.default_child
        assert isinstance(cfn, secretsmanager.CfnSecret)
        cfn.generate_secret_string = None
        reason = "The service has a route to rotate a key, which answers with the new one."
        acknowledge_nag_findings(secret, {"SMG4": reason})
        return secret
