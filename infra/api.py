"""API Gateway's REST API, built from the table of routes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from aws_cdk import CfnOutput, RemovalPolicy, Stack
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_route53 as route53
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_wafv2 as wafv2
from constructs import Construct

from infra.api_definition import (
    BINARY_MEDIA_TYPES,
    MAX_INTEGRATION_SECONDS,
    MODERN_TLS,
    build_gateway_definition,
)
from infra.firewall import Firewall
from infra.nag_suppressions import acknowledge_nag_findings
from infra.settings import Domain, MutualTls, StackSettings
from strandline.function_specs import FUNCTIONS, FunctionSpec, route_table

STAGE = "api"
"""The name of API Gateway's stage, the first path segment of the default endpoint. A deployment has
one such stage. A stage in cdk.json is something else: a stack of its own."""
MAX_RESOURCES = 300
"""Resources of one API (Amazon API Gateway quotas)."""
_DESCRIPTION = "Strandline: memory for AI agents"
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
_NAG_ACKNOWLEDGMENTS = {
    "APIG2": "The functions validate requests and name the field that is wrong.",
    "APIG3": "The stage chooses a firewall (firewall); it costs.",
    "APIG6": "API Gateway's execution log would show headers, including credentials. The access "
    "log and the functions' logs have every request.",
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
        _require_gateway_limits(table, functions)
        uris = {
            name: self._make_integration_uri(handlers[name])
            for name in dict.fromkeys(table.values())
        }
        self.rest = self._create_rest_api(
            {r: uris[name] for r, name in table.items()},
            self._make_stage_options(table, functions, key),
        )
        self.rest.node.try_remove_child("Endpoint")  # an output: its address may be disabled
        self._require_modern_tls()
        for name in uris:
            self._permit_gateway_to_invoke(handlers[name])
        acknowledge_nag_findings(self, _NAG_ACKNOWLEDGMENTS)
        self.url = self._add_custom_domain(settings.domain) if settings.domain else self.rest.url
        CfnOutput(Stack.of(self), "ApiUrl", value=self.url, description="The address of the API")
        stage = self.rest.deployment_stage.stage_arn
        if settings.firewall:
            own = settings.firewall if isinstance(settings.firewall, str) else None
            acl = own or Firewall(self, "WebAcl", settings).arn
            wafv2.CfnWebACLAssociation(self, "Firewall", resource_arn=stage, web_acl_arn=acl)
        CfnOutput(
            Stack.of(self),
            "ApiStage",
            value=stage,
            description="The stage for a web ACL",
        )

    @property
    def metric_dimensions(self) -> dict[str, str]:
        """The dimensions of its metrics in CloudWatch."""
        return {"ApiName": self._settings.stack_name, "Stage": STAGE}

    def _create_rest_api(
        self, routes: Mapping[str, str], stage: apigateway.StageOptions
    ) -> apigateway.SpecRestApi:
        """The API of these routes (with the URI of each integration), its deployment and its stage.
        The deployment's logical id has a hash of the whole definition: what changes is deployed."""
        settings = self._settings
        return apigateway.SpecRestApi(
            self,
            "Service",
            rest_api_name=settings.stack_name,
            description=_DESCRIPTION,  # of the deployment; the API's is in the definition
            api_definition=apigateway.ApiDefinition.from_inline(
                self._build_openapi_definition(routes)
            ),
            # What is removed from the definition is removed from the API. The properties below
            # repeat what the definition says, for those who read the template: checks, drift
            # detection.
            mode=apigateway.RestApiMode.OVERWRITE,
            endpoint_configuration=self._make_endpoint_configuration(),
            # An import makes an edge-optimized API unless the request says otherwise.
            parameters={"endpointConfigurationTypes": self._choose_endpoint_type().value},
            policy=self._make_private_endpoint_policy(),
            disable_execute_api_endpoint=self._uses_mutual_tls,
            binary_media_types=[*BINARY_MEDIA_TYPES],
            # Without this role the account refuses an access log. The role belongs to the account,
            # not to this stack: another stack may rely on it.
            cloud_watch_role=settings.gateway_log_role,
            cloud_watch_role_removal_policy=RemovalPolicy.RETAIN
            if settings.gateway_log_role
            else None,
            deploy_options=stage,
        )

    def _require_modern_tls(self) -> None:
        """On the default endpoint. CDK's SpecRestApi has no such properties."""
        rest = self.rest.node.default_child
        assert isinstance(rest, apigateway.CfnRestApi)
        rest.security_policy = self._tls.get("x-amazon-apigateway-security-policy")
        rest.endpoint_access_mode = self._tls.get("x-amazon-apigateway-endpoint-access-mode")

    @property
    def _tls(self) -> Mapping[str, str]:
        """What the definition says about TLS. A private API takes 1.2 and later by itself. With
        mutual TLS the default endpoint is closed, and its domain may have none of the newer
        policies, which take precedence over the domain's."""
        return {} if self._settings.private or self._uses_mutual_tls else MODERN_TLS

    def _build_openapi_definition(self, routes: Mapping[str, str]) -> dict[str, Any]:
        settings = self._settings
        endpoint: dict[str, Any] = {"disableExecuteApiEndpoint": self._uses_mutual_tls}
        if settings.private:
            endpoint["vpcEndpointIds"] = [*settings.vpc_endpoint_ids]
        policy = self._make_private_endpoint_policy()
        return build_gateway_definition(
            settings.stack_name,
            _DESCRIPTION,
            routes,
            origins=settings.cors_origins,
            endpoint=endpoint,
            tls=self._tls,
            policy=policy.to_json() if policy else None,
        )

    def _make_stage_options(
        self, table: Mapping[str, str], functions: Sequence[FunctionSpec], key: kms.IKey | None
    ) -> apigateway.StageOptions:
        settings = self._settings
        log = logs.LogGroup(
            self, "AccessLog", encryption_key=key, removal_policy=RemovalPolicy.DESTROY
        )
        cast(logs.CfnLogGroup, log.node.default_child).retention_in_days = settings.access_log_days
        return apigateway.StageOptions(
            stage_name=STAGE,
            throttling_rate_limit=settings.request_rate,
            throttling_burst_limit=settings.request_burst,
            method_options=self._make_method_throttles(table, functions),
            tracing_enabled=settings.tracing,
            data_trace_enabled=False,
            logging_level=apigateway.MethodLoggingLevel.OFF,  # it would show headers
            access_log_destination=apigateway.LogGroupLogDestination(log),
            access_log_format=apigateway.AccessLogFormat.custom(json.dumps(_ACCESS_LOG_FIELDS)),
        )

    def _make_method_throttles(
        self, table: Mapping[str, str], functions: Sequence[FunctionSpec]
    ) -> dict[str, apigateway.MethodDeploymentOptions]:
        """Lower throttles for the methods of functions with fewer instances than requests are
        accepted at once: Lambda would refuse the others. API Gateway throttles a stage or a method,
        so several methods of such a function together may still exceed it."""
        settings = self._settings
        instances = {fn.name: settings.reserved_concurrency(fn) for fn in functions}
        return {
            f"{path}/{method}": apigateway.MethodDeploymentOptions(
                throttling_rate_limit=settings.request_rate,
                throttling_burst_limit=instances[name],
            )
            for (method, _, path), name in sorted(
                (route.partition(" "), name) for route, name in table.items()
            )
            if 0 < instances[name] < settings.request_burst
        }

    @property
    def _uses_mutual_tls(self) -> bool:
        return bool(self._settings.domain and self._settings.domain.mutual_tls)

    def _choose_endpoint_type(self) -> apigateway.EndpointType:
        private = self._settings.private
        return apigateway.EndpointType.PRIVATE if private else apigateway.EndpointType.REGIONAL

    def _make_endpoint_configuration(self) -> apigateway.EndpointConfiguration:
        if not self._settings.private:
            return apigateway.EndpointConfiguration(types=[self._choose_endpoint_type()])
        return apigateway.EndpointConfiguration(
            types=[self._choose_endpoint_type()],
            vpc_endpoints=[
                ec2.InterfaceVpcEndpoint.from_interface_vpc_endpoint_attributes(
                    self, f"Endpoint{number}", vpc_endpoint_id=endpoint, port=443
                )
                for number, endpoint in enumerate(self._settings.vpc_endpoint_ids)
            ],
        )

    def _make_private_endpoint_policy(self) -> iam.PolicyDocument | None:
        """Of a private API: everyone may call, but only through its endpoints."""
        if not self._settings.private:
            return None
        endpoints = [*self._settings.vpc_endpoint_ids]
        return iam.PolicyDocument(
            statements=[
                iam.PolicyStatement(
                    principals=[cast(iam.IPrincipal, iam.AnyPrincipal())],
                    actions=["execute-api:Invoke"],
                    resources=["execute-api:/*"],
                    conditions={"StringEquals": {"aws:SourceVpce": endpoints}},
                )
            ]
        )

    def _make_integration_uri(self, alias: lambda_.Alias) -> str:
        stack = Stack.of(self)
        path = f"2015-03-31/functions/{alias.function_arn}/invocations"
        return f"arn:{stack.partition}:apigateway:{stack.region}:lambda:path/{path}"

    def _permit_gateway_to_invoke(self, alias: lambda_.Alias) -> None:
        """One permission for each function, for all its routes in this stage."""
        gateway_service = iam.ServicePrincipal("apigateway.amazonaws.com")
        alias.add_permission(
            f"{self.node.id}Invokes",
            principal=cast(iam.IPrincipal, gateway_service),
            source_arn=self.rest.arn_for_execute_api("*", "/*", STAGE),
        )

    def _add_custom_domain(self, domain: Domain) -> str:
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
            mtls=self._make_mutual_tls_config(domain.mutual_tls) if domain.mutual_tls else None,
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
        if domain.hosted_zone_id:
            self._create_dns_record(domain, domain.hosted_zone_id, name)
        description = f"The target for a CNAME or alias record of {domain.name}"
        CfnOutput(Stack.of(self), "DomainTarget", value=target, description=description)
        return f"https://{domain.name}/{domain.base_path}".rstrip("/") + "/"

    def _create_dns_record(
        self, domain: Domain, hosted_zone_id: str, name: apigateway.DomainName
    ) -> None:
        """An alias of API Gateway's address, which works at a zone's apex too."""
        route53.CfnRecordSet(
            self,
            "Record",
            hosted_zone_id=hosted_zone_id,
            name=f"{domain.name}.",
            type="A",
            alias_target=route53.CfnRecordSet.AliasTargetProperty(
                dns_name=name.domain_name_alias_domain_name,
                hosted_zone_id=name.domain_name_alias_hosted_zone_id,
            ),
        )

    def _make_mutual_tls_config(self, tls: MutualTls) -> apigateway.MTLSConfig:
        bucket, _, key = tls.truststore_uri.removeprefix("s3://").partition("/")
        return apigateway.MTLSConfig(
            bucket=s3.Bucket.from_bucket_name(self, "Truststore", bucket),
            key=key,
            version=tls.truststore_version,
        )


def _require_gateway_limits(table: Mapping[str, str], functions: Sequence[FunctionSpec]) -> None:
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
