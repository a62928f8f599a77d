"""API Gateway's REST API, built from the table of routes."""

import json
from collections.abc import Mapping, Sequence
from typing import cast

from aws_cdk import CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_wafv2 as wafv2
from constructs import Construct

from infra.nag_suppressions import acknowledge
from infra.settings import Domain, MutualTls, StackSettings
from strandline.deployment import FUNCTIONS, FunctionSpec, route_table
from strandline.http import gateway_responses

STAGE = "api"
"""The name of API Gateway's stage, the first path segment of the default endpoint. A deployment has
one such stage. A stage in cdk.json is something else: a stack of its own."""
MAX_INTEGRATION_SECONDS = 29
"""How long API Gateway waits for a function."""
MAX_RESOURCES = 300
"""Resources of one API (Amazon API Gateway quotas)."""
_ACCESS_LOG_FIELDS = {
    "request_id": "$context.requestId",
    "trace": "$context.xrayTraceId",
    "time": "$context.requestTimeEpoch",
    "ip": "$context.identity.sourceIp",
    "method": "$context.httpMethod",
    "route": "$context.resourcePath",  # not the path: it may hold a session's name
    "status": "$context.status",
    "gateway_answer": "$context.error.responseType",
    "bytes": "$context.responseLength",
    "milliseconds": "$context.responseLatency",
    "function_status": "$context.integration.status",
    "function_milliseconds": "$context.integration.latency",
}
"""The access log's fields. It contains no body, no header and no query."""
_ROLE = "arn:<AWS::Partition>:iam::aws:policy/service-role/AmazonAPIGatewayPushToCloudWatchLogs"
_AUTH_IN_FUNCTIONS = "The functions authenticate, in one place for every kind of credential."
_NAG_ACKNOWLEDGMENTS = {
    "APIG2": "The functions validate requests and name the field that is wrong.",
    "APIG3": "The account chooses a firewall (web_acl); it costs.",
    "APIG4": _AUTH_IN_FUNCTIONS,
    "APIG6": "API Gateway's execution log would show headers, including credentials. The access "
    "log and the functions' logs have every request.",
    "COG4": _AUTH_IN_FUNCTIONS,
    f"IAM4[Policy::{_ROLE}]": "The policy that API Gateway's logging needs, by the guide of AWS.",
}


class Api(Construct):
    """A regional or private REST API in front of `handlers`, by the names of their functions."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        settings: StackSettings,
        handlers: Mapping[str, lambda_.Alias],
        *,
        key: kms.IKey | None = None,
        functions: Sequence[FunctionSpec] = FUNCTIONS,
    ) -> None:
        super().__init__(scope, id)
        self._settings = settings
        table = route_table(functions, preflights=bool(settings.cors_origins))
        _check_limits(table, functions)
        self.rest = self._create_rest_api(key)
        self.rest.node.try_remove_child("Endpoint")  # an output: its address may be disabled
        self._add_routes(table, handlers)
        self._add_gateway_responses()
        acknowledge(self, _NAG_ACKNOWLEDGMENTS)
        self.url = self._add_domain(settings.domain) if settings.domain else self.rest.url
        CfnOutput(Stack.of(self), "ApiUrl", value=self.url, description="The address of the API")
        stage = self.rest.deployment_stage.stage_arn
        if settings.web_acl:
            wafv2.CfnWebACLAssociation(
                self, "Firewall", resource_arn=stage, web_acl_arn=settings.web_acl
            )
        CfnOutput(
            Stack.of(self),
            "ApiStage",
            value=stage,
            description="The stage for a web ACL",
        )

    @property
    def dimensions(self) -> dict[str, str]:
        """The dimensions of its metrics in CloudWatch."""
        return {"ApiName": self._settings.stack_name, "Stage": STAGE}

    def _create_rest_api(self, key: kms.IKey | None) -> apigateway.RestApi:
        settings = self._settings
        log = logs.LogGroup(
            self, "AccessLog", encryption_key=key, removal_policy=RemovalPolicy.DESTROY
        )
        cast(logs.CfnLogGroup, log.node.default_child).retention_in_days = settings.log_days
        return apigateway.RestApi(
            self,
            "Rest",
            rest_api_name=settings.stack_name,
            description="Strandline: memory for AI agents",
            endpoint_configuration=self._endpoint(),
            policy=_endpoint_policy(settings.vpc_endpoint_ids) if settings.private else None,
            disable_execute_api_endpoint=bool(settings.domain and settings.domain.mutual_tls),
            # All media types: a block in DAG-CBOR is sent as bytes whatever a client accepts, and
            # a request arrives as base64, exactly a third longer (see local/proxy_event.py).
            binary_media_types=["*/*"],
            # Without this role the account refuses an access log. The role belongs to the account,
            # not to this stack: another stack may rely on it.
            cloud_watch_role=settings.gateway_log_role,
            cloud_watch_role_removal_policy=RemovalPolicy.RETAIN
            if settings.gateway_log_role
            else None,
            deploy_options=apigateway.StageOptions(
                stage_name=STAGE,
                throttling_rate_limit=settings.request_rate,
                throttling_burst_limit=settings.request_burst,
                tracing_enabled=settings.tracing,
                data_trace_enabled=False,
                logging_level=apigateway.MethodLoggingLevel.OFF,  # it would show headers
                access_log_destination=apigateway.LogGroupLogDestination(log),
                access_log_format=apigateway.AccessLogFormat.custom(json.dumps(_ACCESS_LOG_FIELDS)),
            ),
        )

    def _endpoint(self) -> apigateway.EndpointConfiguration:
        if not self._settings.private:
            return apigateway.EndpointConfiguration(types=[apigateway.EndpointType.REGIONAL])
        return apigateway.EndpointConfiguration(
            types=[apigateway.EndpointType.PRIVATE],
            vpc_endpoints=[
                ec2.InterfaceVpcEndpoint.from_interface_vpc_endpoint_attributes(
                    self, f"Endpoint{number}", vpc_endpoint_id=endpoint, port=443
                )
                for number, endpoint in enumerate(self._settings.vpc_endpoint_ids)
            ],
        )

    def _add_routes(self, table: Mapping[str, str], handlers: Mapping[str, lambda_.Alias]) -> None:
        stack = Stack.of(self)
        integrations: dict[str, apigateway.Integration] = {}
        gateway_service = iam.ServicePrincipal("apigateway.amazonaws.com")
        for name in dict.fromkeys(table.values()):
            alias = handlers[name]
            # One permission for each function. LambdaIntegration would create two for each method.
            alias.add_permission(
                f"{self.node.id}Invokes",
                principal=cast(iam.IPrincipal, gateway_service),
                source_arn=self.rest.arn_for_execute_api("*", "/*", STAGE),
            )
            path = f"2015-03-31/functions/{alias.function_arn}/invocations"
            integrations[name] = apigateway.Integration(
                type=apigateway.IntegrationType.AWS_PROXY,
                integration_http_method="POST",
                uri=f"arn:{stack.partition}:apigateway:{stack.region}:lambda:path/{path}",
                options=apigateway.IntegrationOptions(
                    timeout=Duration.seconds(MAX_INTEGRATION_SECONDS)
                ),
            )
        for route, name in table.items():
            method, _, path = route.partition(" ")
            resource = self.rest.root.resource_for_path(path)
            resource.add_method(
                method,
                integrations[name],
                authorization_type=apigateway.AuthorizationType.NONE,
            )

    def _add_gateway_responses(self) -> None:
        cors_headers = gateway_responses.gateway_cors_headers(self._settings.cors_origins)
        for kind, response in gateway_responses.RESPONSES.items():
            headers = response.headers | cors_headers
            self.rest.add_gateway_response(
                "".join(word.title() for word in kind.split("_")),
                type=apigateway.ResponseType.of(kind),
                status_code=str(response.status) if response.status else None,
                response_headers={name: f"'{value}'" for name, value in headers.items()},
                templates={"application/json": response.body(gateway_responses.REQUEST_ID)},
            )

    def _add_domain(self, domain: Domain) -> str:
        """Serve under a custom domain name; returns the address."""
        name = apigateway.DomainName(
            self,
            "Domain",
            domain_name=domain.name,
            certificate=acm.Certificate.from_certificate_arn(
                self, "Certificate", domain.certificate_arn
            ),
            endpoint_type=apigateway.EndpointType.REGIONAL,
            security_policy=apigateway.SecurityPolicy.TLS_1_2,
            mtls=self._truststore(domain.mutual_tls) if domain.mutual_tls else None,
        )
        cfn = name.node.default_child
        assert isinstance(cfn, apigateway.CfnDomainName)
        cfn.ownership_verification_certificate_arn = domain.ownership_certificate_arn
        apigateway.BasePathMapping(
            self,
            "Mapping",
            domain_name=name,
            rest_api=self.rest,
            base_path=domain.base_path or None,
            stage=self.rest.deployment_stage,
        )
        target = name.domain_name_alias_domain_name
        description = f"The target for a CNAME or alias record of {domain.name}"
        CfnOutput(Stack.of(self), "DomainTarget", value=target, description=description)
        return f"https://{domain.name}/{domain.base_path}".rstrip("/") + "/"

    def _truststore(self, tls: MutualTls) -> apigateway.MTLSConfig:
        bucket, _, key = tls.truststore_uri.removeprefix("s3://").partition("/")
        return apigateway.MTLSConfig(
            bucket=s3.Bucket.from_bucket_name(self, "Truststore", bucket),
            key=key,
            version=tls.truststore_version,
        )


def _check_limits(table: Mapping[str, str], functions: Sequence[FunctionSpec]) -> None:
    """Raise ValueError if API Gateway cannot serve the whole table."""
    paths = {tuple(filter(None, route.partition(" ")[2].split("/"))) for route in table}
    resources = {path[:length] for path in paths for length in range(len(path) + 1)}
    if len(resources) > MAX_RESOURCES:
        raise ValueError(
            f"{len(resources)} resources: API Gateway takes {MAX_RESOURCES} in one API"
        )
    for fn in functions:
        if fn.routes and fn.timeout > MAX_INTEGRATION_SECONDS:
            raise ValueError(
                f"{fn.name}: timeout {fn.timeout} s: API Gateway waits "
                f"{MAX_INTEGRATION_SECONDS} s for a route"
            )


def _endpoint_policy(endpoints: Sequence[str]) -> iam.PolicyDocument:
    """Everyone may call, but only through these endpoints."""
    return iam.PolicyDocument(
        statements=[
            iam.PolicyStatement(
                principals=[cast(iam.IPrincipal, iam.AnyPrincipal())],
                actions=["execute-api:Invoke"],
                resources=["execute-api:/*"],
                conditions={"StringEquals": {"aws:SourceVpce": list(endpoints)}},
            )
        ]
    )
