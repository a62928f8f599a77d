"""What is kept beside the database: payloads, messages, secrets; and the key they lie under."""

from typing import cast

from aws_cdk import ArnFormat, Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.nag_suppressions import acknowledge
from infra.settings import StackSettings
from strandline.deployment import FUNCTIONS

MAX_RECEIVES = 5
"""How often a message may be received before it is dead: as Lambda's own guide has it, so that
being throttled kills none."""
_NONCURRENT_DAYS = 30
_RETAIN = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
"""But for what a first deployment made that failed: nothing is in it yet."""
_TIMEOUTS = {fn.name: fn.timeout for fn in FUNCTIONS}


class Storage(Construct):
    """Bucket, queues, secrets. Each is closed to what does not come by TLS, and encrypted under the
    key of one's own if there is one."""

    def __init__(self, scope: Construct, id: str, settings: StackSettings) -> None:
        super().__init__(scope, id)
        self.key = self._key(settings)
        self.bucket = self._bucket(settings)
        self.work_queue, self.work_dead_letters = self._queue("Hints", _TIMEOUTS["worker"])
        self.job_queue, self.job_dead_letters = self._queue("Runs", _TIMEOUTS["scheduler"])
        self.secrets = self._secrets()
        self.first_key = self._first_key()

    def _key(self, settings: StackSettings) -> kms.IKey | None:
        if isinstance(settings.key, str):
            return kms.Key.from_key_arn(self, "Key", settings.key)
        if not settings.key:
            return None
        key = kms.Key(
            self,
            "Key",
            description=f"Everything that {settings.stack_name} keeps",
            enable_key_rotation=True,
            removal_policy=_RETAIN,  # backups are worth nothing without it
        )
        stack = Stack.of(self)
        write_logs = iam.PolicyStatement(
            actions=["kms:Encrypt", "kms:Decrypt", "kms:GenerateDataKey*", "kms:DescribeKey"],
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
        # Its parameters' names differ from the interface's, which pyright minds and jsii does not.
        return cast(kms.IKey, key)

    def _bucket(self, settings: StackSettings) -> s3.Bucket:
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
            cors=[cors_rule] if settings.cors_origins else None,
            lifecycle_rules=self._lifecycle(settings),
            removal_policy=_RETAIN,
        )
        acknowledge(
            bucket,
            {
                "S1": "Every access to a payload is a request that the service logs and audits. "
                "Who wants S3's own record has CloudTrail's data events, for all buckets alike."
            },
        )
        return bucket

    def _lifecycle(self, settings: StackSettings) -> list[s3.LifecycleRule]:
        """The backstop of what the archiver and the jobs themselves remove."""
        grace = -(-settings.service_settings.upload_grace_seconds // 86_400)
        return [
            s3.LifecycleRule(
                id="uploads that nobody cites",
                prefix="_uploads/",
                expiration=Duration.days(grace + 1),
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
                noncurrent_version_expiration=Duration.days(_NONCURRENT_DAYS),
                expired_object_delete_marker=True,
            ),
        ]

    def _queue(self, name: str, timeout: int) -> tuple[sqs.Queue, sqs.Queue]:
        """A queue for a function of this timeout, and where its dead letters go."""
        encryption = sqs.QueueEncryption.KMS if self.key else sqs.QueueEncryption.SQS_MANAGED
        dead_letters = sqs.Queue(
            self,
            f"Dead{name}",
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

    def _secrets(self) -> secretsmanager.Secret:
        """The settings that are secret, one JSON object. An operator may add members."""
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
            removal_policy=_RETAIN,  # without it no key of a restored database holds
        )
        reason = "Every API key bears a MAC under key_secret: a rotation would revoke them all."
        acknowledge(secret, {"SMG4": reason})
        return secret

    def _first_key(self) -> secretsmanager.Secret:
        """Where the first deployment puts the operator's key. Empty until then."""
        secret = secretsmanager.Secret(
            self,
            "FirstKey",
            description="The operator's first API key, put here by the first deployment",
            encryption_key=self.key,
        )
        cfn = secret.node.default_child
        assert isinstance(cfn, secretsmanager.CfnSecret)
        cfn.generate_secret_string = None
        reason = "A key is rotated by the service's own route, which tells its holder the new one."
        acknowledge(secret, {"SMG4": reason})
        return secret
