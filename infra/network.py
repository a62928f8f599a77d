"""The network of the functions and the database, and its egress."""

from ipaddress import IPv4Network

from aws_cdk import Acknowledgment, Stack, Validations
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.log_group_factory import create_log_group
from infra.role_factory import create_service_role, make_allow_statement
from infra.settings import ExistingVpc, StackSettings
from infra.storage_and_queues import Storage

_HTTPS = ec2.Port.tcp(443)
_ENDPOINT_NAMES = {
    "sqs": "Sqs",
    "secretsmanager": "SecretsManager",
    "bedrock-runtime": "Bedrock",
}
"""Names in the stack; in lower case the prefixes of the services' IAM actions."""


class Network(Construct):
    """A VPC, its subnets for functions and database, and the functions' security group."""

    def __init__(
        self, scope: Construct, id: str, settings: StackSettings, storage: Storage
    ) -> None:
        super().__init__(scope, id)
        if settings.vpc:
            self.vpc = self._import_vpc(settings.vpc)
        else:
            self.vpc = self._create_vpc(settings, storage)
        nat = settings.network == "nat"
        kind = ec2.SubnetType.PRIVATE_WITH_EGRESS if nat else ec2.SubnetType.PRIVATE_ISOLATED
        self.subnets = ec2.SubnetSelection(subnet_type=kind)
        self.functions = ec2.SecurityGroup(
            self,
            "Functions",
            vpc=self.vpc,
            description="The functions that need the database",
            allow_all_outbound=settings.network != "endpoints",
        )
        extra_groups = settings.vpc.security_group_ids if settings.vpc else []
        self.security_groups: list[ec2.ISecurityGroup] = [
            self.functions,
            *(
                ec2.SecurityGroup.from_security_group_id(self, group, group, mutable=False)
                for group in extra_groups
            ),
        ]
        if settings.network == "endpoints":
            self.functions.add_egress_rule(
                ec2.Peer.any_ipv4(), _HTTPS, "to the endpoints of the VPC"
            )
            self._add_interface_endpoints(settings)

    def _import_vpc(self, existing: ExistingVpc) -> ec2.IVpc:
        vpc = ec2.Vpc.from_vpc_attributes(
            self,
            "Vpc",
            vpc_id=existing.vpc_id,
            availability_zones=existing.availability_zones,
            isolated_subnet_ids=existing.subnet_ids,
        )
        # Nothing here needs their route tables.
        Validations.of(vpc).acknowledge(
            Acknowledgment(id="@aws-cdk/aws-ec2:noSubnetRouteTableId", reason="not needed")
        )
        return vpc

    def _create_vpc(self, settings: StackSettings, storage: Storage) -> ec2.Vpc:
        nat = settings.network == "nat"
        kind = ec2.SubnetType.PRIVATE_WITH_EGRESS if nat else ec2.SubnetType.PRIVATE_ISOLATED
        prefix = IPv4Network(settings.cidr).prefixlen
        subnets = [ec2.SubnetConfiguration(name="private", subnet_type=kind, cidr_mask=prefix + 4)]
        if nat:
            public = ec2.SubnetType.PUBLIC
            subnets.append(
                ec2.SubnetConfiguration(
                    name="nat", subnet_type=public, cidr_mask=min(28, prefix + 10)
                )
            )
        group = create_log_group(
            self, "Logs", settings, storage.key, f"/aws/vpc/{settings.stack_name}"
        )
        flow_log = ec2.FlowLogDestination.to_cloud_watch_logs(
            group, self._create_flow_log_role(group)
        )
        vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(settings.cidr),
            max_azs=2,
            nat_gateways=settings.nat_gateways if nat else 0,
            subnet_configuration=subnets,
            flow_logs={
                "Refused": ec2.FlowLogOptions(
                    destination=flow_log, traffic_type=ec2.FlowLogTrafficType.REJECT
                ),
            },
        )
        s3_endpoint = vpc.add_gateway_endpoint("S3", service=ec2.GatewayVpcEndpointAwsService.S3)
        bucket = storage.bucket
        objects = bucket.arn_for_objects("*")
        actions = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket"]
        # the eraser's and the sweeper's
        actions += ["s3:GetBucketVersioning", "s3:DeleteObjectVersion", "s3:ListBucketVersions"]
        policy = make_allow_statement(actions, bucket.bucket_arn, objects)
        policy.add_any_principal()
        s3_endpoint.add_to_policy(policy)
        return vpc

    def _create_flow_log_role(self, group: logs.LogGroup) -> iam.IRole:
        """The role with which the VPC's log is written: for flow logs of this account only."""
        stack = Stack.of(self)
        # Permissions of the VPC User Guide, "IAM role for publishing flow logs to CloudWatch Logs",
        # but for creating groups. Listing groups takes no resource.
        write = ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"]
        return create_service_role(
            self,
            "FlowLogRole",
            "vpc-flow-logs",
            [
                make_allow_statement(write, group.log_group_arn),
                make_allow_statement(["logs:DescribeLogGroups"], "*"),
            ],
            account=stack.account,
            source=stack.format_arn(service="ec2", resource="vpc-flow-log", resource_name="*"),
            wildcards={r"::\*$": "Listing log groups takes no resource."},
        )

    def _add_interface_endpoints(self, settings: StackSettings) -> None:
        group = ec2.SecurityGroup(
            self,
            "Endpoints",
            vpc=self.vpc,
            description="Endpoints of the VPC",
            allow_all_outbound=False,
        )
        group.add_ingress_rule(self.functions, _HTTPS, "from the functions")
        zones = self.vpc.select_subnets(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED).subnets
        for service in settings.endpoint_services:
            name = _ENDPOINT_NAMES[service]
            endpoint = self.vpc.add_interface_endpoint(
                name,
                service=ec2.InterfaceVpcEndpointAwsService(service),
                subnets=ec2.SubnetSelection(subnets=zones[: settings.endpoint_zones]),
                security_groups=[group],
                open=False,
            )
            endpoint.add_to_policy(self._make_own_account_policy(name))

    def _make_own_account_policy(self, name: str) -> iam.PolicyStatement:
        """Prevents that memory leaves through another account's credentials or resources."""
        account = Stack.of(self).account
        condition = {"aws:PrincipalAccount": account}
        if name != "Bedrock":  # its models belong to AWS
            condition["aws:ResourceAccount"] = account
        policy = make_allow_statement([f"{name.lower()}:*"], "*")
        policy.add_any_principal()
        policy.add_condition("StringEquals", condition)
        return policy
