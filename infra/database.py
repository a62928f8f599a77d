"""Aurora PostgreSQL, Serverless v2. Only the functions reach it, only with TLS and IAM."""

from aws_cdk import ArnFormat, Duration, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_rds as rds
from constructs import Construct

from infra.log_group_factory import create_log_group
from infra.nag_suppressions import acknowledge_nag_findings
from infra.network import Network
from infra.role_factory import create_service_role, make_allow_statement
from infra.settings import StackSettings

NAME = "strandline"
PORT = 5432
APP, OWNER, MASTER = "strandline_app", "strandline_owner", "strandline_master"
"""Database users: the service, the migrations, and the master user, which creates the other two."""


class Database(Construct):
    """The cluster, with a proxy in front of it if the settings say so."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        settings: StackSettings,
        network: Network,
        key: kms.IKey | None,
    ) -> None:
        super().__init__(scope, id)
        self.identifier = settings.cluster_identifier
        self.cluster = self._create_cluster(settings, network, key)
        self.cluster.connections.allow_default_port_from(network.functions, "from the functions")
        self.proxy = self._create_proxy(settings, network, key) if settings.proxy else None

    @property
    def service_host(self) -> str:
        """Host that the service connects to."""
        return self.proxy.endpoint if self.proxy else self.migration_host

    @property
    def migration_host(self) -> str:
        """Host that migrations connect to. They bypass a proxy, which knows only one role."""
        return self.cluster.cluster_endpoint.hostname

    @property
    def app_user_arn(self) -> str:
        """The service's user, as rds-db:connect names it."""
        return self._make_user_arn(self.cluster.cluster_resource_identifier, APP)

    @property
    def proxy_user_arn(self) -> str | None:
        """The same user behind the proxy; None without one."""
        if self.proxy is None:
            return None
        # prx-… is the last part of the proxy's ARN.
        arn = Stack.of(self).split_arn(self.proxy.db_proxy_arn, ArnFormat.COLON_RESOURCE_NAME)
        return self._make_user_arn(arn.resource_name or "", APP)

    @property
    def owner_user_arn(self) -> str:
        """The migrations' user, as rds-db:connect names it."""
        return self._make_user_arn(self.cluster.cluster_resource_identifier, OWNER)

    @property
    def master_secret_arn(self) -> str:
        """The secret with the master user's password, created and rotated by RDS."""
        assert self.cluster.secret
        return self.cluster.secret.secret_arn

    def _make_user_arn(self, resource: str, user: str) -> str:
        return Stack.of(self).format_arn(
            service="rds-db",
            resource="dbuser",
            resource_name=f"{resource}/{user}",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )

    def _create_cluster(
        self, settings: StackSettings, network: Network, key: kms.IKey | None
    ) -> rds.DatabaseCluster:
        # Created before RDS creates it without a retention time.
        log = create_log_group(
            self, "Logs", settings, key, f"/aws/rds/cluster/{self.identifier}/postgresql"
        )
        cluster = rds.DatabaseCluster(
            self,
            "Cluster",
            cluster_identifier=self.identifier,
            engine=_make_engine(settings),
            parameters=_make_cluster_parameters(settings),
            default_database_name=NAME,
            credentials=rds.Credentials.from_username(MASTER, encryption_key=key),
            manage_master_user_password=True,
            iam_authentication=True,
            vpc=network.vpc,
            vpc_subnets=network.subnets,
            security_groups=[
                self._create_closed_security_group(
                    "Group", network, "The database, which begins no connection"
                )
            ],
            writer=_make_serverless_instance("Writer", settings, key),
            readers=_make_readers(settings, key),
            serverless_v2_min_capacity=settings.min_capacity,
            serverless_v2_max_capacity=settings.max_capacity,
            serverless_v2_auto_pause_duration=Duration.minutes(settings.pause_minutes)
            if settings.can_pause
            else None,
            storage_type=rds.DBClusterStorageType.AURORA_IOPT1
            if settings.storage_type == "aurora-iopt1"
            else rds.DBClusterStorageType.AURORA,
            storage_encrypted=True,
            storage_encryption_key=key,
            backup=rds.BackupProps(retention=Duration.days(settings.backup_days)),
            copy_tags_to_snapshot=True,
            deletion_protection=settings.deletion_protection,
            removal_policy=RemovalPolicy.SNAPSHOT,
            cloudwatch_logs_exports=["postgresql"],
        )
        cluster.node.add_dependency(log)
        if not settings.deletion_protection:
            acknowledge_nag_findings(
                cluster, {"RDS10": "The stage turns it off (deletion_protection)."}
            )
        if settings.snapshot:
            _create_from_snapshot(cluster, settings.snapshot)
        return cluster

    def _create_closed_security_group(
        self, id: str, network: Network, description: str
    ) -> ec2.SecurityGroup:
        """A security group that lets nothing out but what is added to it."""
        return ec2.SecurityGroup(
            self, id, vpc=network.vpc, description=description, allow_all_outbound=False
        )

    def _create_proxy(
        self, settings: StackSettings, network: Network, key: kms.IKey | None
    ) -> rds.DatabaseProxy:
        """The proxy uses IAM at both ends, so it keeps no password."""
        name = settings.stack_name
        log = create_log_group(self, "ProxyLogs", settings, key, f"/aws/rds/proxy/{name}")
        user = self._make_user_arn(self.cluster.cluster_resource_identifier, APP)
        group = self._create_closed_security_group(
            "ProxyGroup", network, "The proxy of the database"
        )
        proxy = rds.DatabaseProxy(
            self,
            "Proxy",
            db_proxy_name=name,
            proxy_target=rds.ProxyTarget.from_cluster(self.cluster),
            vpc=network.vpc,
            vpc_subnets=network.subnets,
            security_groups=[group],
            role=create_service_role(
                self, "ProxyRole", "rds", [make_allow_statement(["rds-db:connect"], user)]
            ),
            default_auth_scheme=rds.DefaultAuthScheme.IAM_AUTH,
            require_tls=True,
        )
        proxy.node.add_dependency(log)
        # The proxy adds its own rule to the cluster: a second one would be rejected.
        port = ec2.Port.tcp(PORT)
        group.connections.allow_from(network.functions, port, "from the functions")
        return proxy


def _make_engine(settings: StackSettings) -> rds.IClusterEngine:
    version, major = settings.engine_version, settings.engine_version.partition(".")[0]
    return rds.DatabaseClusterEngine.aurora_postgres(
        version=rds.AuroraPostgresEngineVersion.of(
            version, major, serverless_v2_auto_pause_supported=True
        )
    )


def _make_cluster_parameters(settings: StackSettings) -> dict[str, str]:
    """TLS is required. The log omits errors of sessions, with their DETAIL and statements: they may
    quote memory (strandline.local.postgres has the same)."""
    parameters = {
        "rds.force_ssl": "1",
        "log_min_messages": "log",
        "log_error_verbosity": "terse",
        "log_min_error_statement": "panic",
    }
    if settings.max_connections:
        parameters["max_connections"] = str(settings.max_connections)
    return parameters


def _make_serverless_instance(
    name: str,
    settings: StackSettings,
    key: kms.IKey | None,
    *,
    scale_with_writer: bool | None = None,
) -> rds.IClusterInstance:
    # They prevent a small database from pausing, and AWS recommends two units for them. That they
    # are off is said: what is left out of a template stays as it was.
    insights = settings.min_capacity >= 2
    return rds.ClusterInstance.serverless_v2(
        name,
        publicly_accessible=False,
        # A restore asks for `engine_version`, which must not be older than the snapshot's.
        auto_minor_version_upgrade=False,
        enable_performance_insights=insights,
        performance_insight_encryption_key=key if insights else None,
        scale_with_writer=scale_with_writer,
    )


def _make_readers(settings: StackSettings, key: kms.IKey | None) -> list[rds.IClusterInstance]:
    return [
        _make_serverless_instance(f"Reader{n + 1}", settings, key, scale_with_writer=True)
        for n in range(settings.readers)
    ]


def _create_from_snapshot(cluster: rds.DatabaseCluster, snapshot: str) -> None:
    """Create the cluster from a snapshot, which has its own database and master user."""
    cfn = cluster.node.default_child
    assert isinstance(cfn, rds.CfnDBCluster)
    cfn.snapshot_identifier = snapshot
    cfn.database_name = cfn.master_username = None
