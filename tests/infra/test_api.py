"""The REST API in the template, and what it answers by itself: there as in the local gateway."""

import functools
import importlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from jsonschema.exceptions import ValidationError
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV2SpecValidator
from openapi_spec_validator.validation.exceptions import OpenAPIValidationError

from infra import api_definition, firewall
from strandline.config import ServiceSettings, get_settings
from strandline.errors import Misconfigured, NotFound
from strandline.function_specs import FUNCTIONS, FunctionSpec, route_table
from strandline.http import app as http_app
from strandline.http import gateway_generated_responses
from strandline.http.gateway_generated_responses import REQUEST_ID, RESPONSES
from strandline.local.http_server import GatewayApp
from strandline.local.lambda_context import Handler
from tests import contract, support
from tests.infra.kept_templates import keep
from tests.strandline.local.gateway_server import call, serving_app
from tests.support import Gateway, user_message

type Resources = Mapping[str, Any]
SERVING = tuple(fn for fn in FUNCTIONS if fn.routes)
PAGE, OTHER = "https://app.example", "https://other.example"
DOMAIN = {"name": "memory.example.com", "certificate_arn": "arn:aws:acm:eu-west-1:1:certificate/c"}
TRUST = {"truststore_uri": "s3://authorities/ca.pem", "truststore_version": "3sL4kqtJ"}
MUTUAL_TLS = {**DOMAIN, "base_path": "memory", "mutual_tls": TRUST}
PRIVATE: Mapping[str, Any] = {"private": True, "vpc_endpoint_ids": ["vpce-1"]}


@functools.cache
def _synthesize(props: str, functions: tuple[FunctionSpec, ...]) -> Resources:
    def make() -> str:
        from tests.infra import synthesis

        return synthesis.make_api(json.loads(props), functions)

    return json.loads(keep("api", f"{props} {_rows(functions)}", make))


def resources(functions: Sequence[FunctionSpec] = SERVING, **options: object) -> Resources:
    """The API's part of a template, made once for each settings."""
    return _synthesize(json.dumps(options, sort_keys=True), tuple(functions))


def refusal(function: FunctionSpec) -> str:
    """Why an API in front of this function is refused."""

    def make() -> str:
        from tests.infra import synthesis

        return synthesis.refusal_of_api([function])

    return keep("refusal", _rows([function]), make)


def _rows(functions: Sequence[FunctionSpec]) -> str:
    """All of them that the API rests on, and what it answers by itself."""
    rows = [(fn.name, fn.timeout, fn.routes) for fn in functions]
    return f"{rows} {gateway_generated_responses.RESPONSES}"


def of(stack_resources: Resources, kind: str) -> list[dict[str, Any]]:
    """The properties of all resources of a kind."""
    return [r["Properties"] for r in stack_resources.values() if r["Type"] == f"AWS::{kind}"]


def the(stack_resources: Resources, kind: str) -> dict[str, Any]:
    (only,) = of(stack_resources, kind)
    return only


# routes ------------------------------------------------------------------------------------------


def definition(stack_resources: Resources) -> dict[str, Any]:
    """What API Gateway imports."""
    return the(stack_resources, "ApiGateway::RestApi")["Body"]


def operations(stack_resources: Resources) -> dict[str, dict[str, Any]]:
    """Every operation of the definition, as the table names it."""
    return {
        f"{method.upper()} {path}": operation
        for path, item in definition(stack_resources)["paths"].items()
        for method, operation in item.items()
    }


def served_by(stack_resources: Resources) -> dict[str, str]:
    """Every operation, and its function."""
    return {
        route: _function(operation["x-amazon-apigateway-integration"]["uri"])
        for route, operation in operations(stack_resources).items()
    }


def _function(uri: dict[str, Any]) -> str:
    (reference,) = [p["Ref"] for p in uri["Fn::Join"][1] if "Live" in str(p)]
    return str(reference).partition("Live")[0]


def test_api_routes_go_to_their_functions_only() -> None:
    assert served_by(resources()) == route_table()


def test_api_with_origins_has_preflight_on_every_path() -> None:
    table = served_by(resources(cors_origins=[PAGE]))
    assert table == route_table(preflights=True)
    assert {r for r in table if r.startswith("OPTIONS")} == {
        f"OPTIONS {route.partition(' ')[2]}" for route in route_table()
    }


def test_api_operations_are_open_proxies_with_path_parameters() -> None:
    stack_resources = resources(cors_origins=[PAGE])
    for route, operation in operations(stack_resources).items():
        integration = dict(operation["x-amazon-apigateway-integration"])
        uri = integration.pop("uri")["Fn::Join"][1]
        assert integration == {"type": "aws_proxy", "httpMethod": "POST", "timeoutInMillis": 29_000}
        lambdas = ":lambda:path/2015-03-31/functions/"
        region, partition = {"Ref": "AWS::Region"}, {"Ref": "AWS::Partition"}
        assert [*uri[:5], uri[6]] == [
            *("arn:", partition, ":apigateway:", region, lambdas, "/invocations")
        ]
        in_path = [part.strip("{}+") for part in route.split("/") if part.startswith("{")]
        assert [p["name"] for p in operation.get("parameters", ())] == in_path, route
        assert {p["in"] for p in operation.get("parameters", ())} <= {"path"}
    # Authorization would be an authorizer's, a key's or a signature's.
    assert not re.findall(r'"(x-amazon-apigateway-a\w+|security\w*)"', json.dumps(stack_resources))


def test_api_definition_is_openapi() -> None:
    whole = definition(resources(cors_origins=[PAGE]))
    # In a greedy path API Gateway's parameter has the name without its sign.
    text = json.dumps(whole).replace("+}", "}")
    OpenAPIV2SpecValidator(json.loads(text)).validate()
    document = json.loads(text)
    del document["paths"]["/api/v1/sessions/{session_id}"]["get"]["parameters"]
    with pytest.raises(OpenAPIValidationError, match="session_id"):
        OpenAPIV2SpecValidator(document).validate()


def test_api_functions_permit_this_stage_only() -> None:
    from infra import api

    props = of(resources(), "Lambda::Permission")
    assert len(props) == len({fn.name for fn in FUNCTIONS if fn.routes})
    for permission in props:
        assert permission["SourceArn"]["Fn::Join"][1][-1] == f"/{api.STAGE}/*/*"


def test_api_refuses_what_gateway_cannot_serve() -> None:
    many = FunctionSpec("many", 128, 29, frozenset(), tuple(f"GET /r{n}" for n in range(300)))
    assert "301 resources" in refusal(many)
    slow = FunctionSpec("slow", 128, 30, frozenset(), ("GET /slow",))
    assert "slow: timeout 30 s" in refusal(slow)


def test_api_is_deployed_only_when_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def deployment(*functions: FunctionSpec, log_days: int = 30) -> str:
        """Its name, of a template that is made for this number."""
        stack_resources = resources(functions, log_days=log_days)
        (name,) = [
            n for n, r in stack_resources.items() if r["Type"] == "AWS::ApiGateway::Deployment"
        ]
        assert the(stack_resources, "ApiGateway::Stage")["DeploymentId"] == {"Ref": name}
        return name

    one = FunctionSpec("one", 128, 29, frozenset(), ("GET /one",))
    before = deployment(one)
    assert deployment(one, log_days=60) == before
    both = replace(one, routes=("GET /one", "PUT /two"))
    assert deployment(both) == deployment(replace(both, routes=both.routes[::-1]))
    for routes in (("GET /one", "PUT /one"), ("GET /two",)):
        assert deployment(replace(one, routes=routes)) != before
    assert deployment(replace(one, name="two")) != before
    copy = replace(gateway_generated_responses.TIMEOUT, message="Too late.")
    with monkeypatch.context() as patch:
        patch.setattr(
            gateway_generated_responses, "RESPONSES", {**RESPONSES, "INTEGRATION_TIMEOUT": copy}
        )
        assert deployment(one, log_days=90) != before
    monkeypatch.setattr(api_definition, "MAX_INTEGRATION_SECONDS", 28)
    assert deployment(one, log_days=120) != before


# the gateway's own answers -----------------------------------------------------------------------


def check_error(body: str) -> dict[str, Any]:
    """Raises ValidationError for what is no error as the OpenAPI document has it."""
    error = json.loads(body)
    schema = {"$ref": "#/components/schemas/Error", "components": contract.document()["components"]}
    OAS31Validator(schema).validate(error)
    assert set(error["error"]) == set(http_app.error_body(NotFound(), ""))
    return error["error"]


def test_api_template_answers_match_error_document() -> None:
    x_amazon_apigateway_gateway_responses = definition(resources())[
        "x-amazon-apigateway-gateway-responses"
    ]
    assert x_amazon_apigateway_gateway_responses.keys() == RESPONSES.keys()
    for kind, answer in x_amazon_apigateway_gateway_responses.items():
        status = RESPONSES[kind].status
        assert answer.get("statusCode") == (str(status) if status else None)
        (template,) = answer["responseTemplates"].values()
        error = check_error(template.replace(REQUEST_ID, "3b9c"))
        assert error["request_id"] == "3b9c"
        waits = "gatewayresponse.header.Retry-After" in answer.get("responseParameters", {})
        assert error["retryable"] == waits, kind
        assert "$" not in template.replace(REQUEST_ID, ""), "what a caller sent would be JSON"


@pytest.mark.parametrize("kind", ["INTEGRATION_FAILURE", "INTEGRATION_TIMEOUT", "DEFAULT_5XX"])
def test_api_answer_to_refused_request_can_be_repeated(kind: str) -> None:
    """What a request gets that Lambda throttles; and a function may have done its work."""
    error = check_error(RESPONSES[kind].make_json_body("3b9c"))
    assert error["retryable"] is True
    assert int(RESPONSES[kind].retry_after_header["Retry-After"]) > 0
    assert "under its Idempotency-Key; a write without one may be done" in error["message"]


def test_api_template_answers_are_readable_with_origin() -> None:
    x_amazon_apigateway_gateway_responses = definition(resources(cors_origins=[PAGE]))[
        "x-amazon-apigateway-gateway-responses"
    ]
    for kind, answer in x_amazon_apigateway_gateway_responses.items():
        cors_headers = gateway_generated_responses.make_gateway_cors_headers([PAGE])
        headers = RESPONSES[kind].retry_after_header | cors_headers
        assert headers["Access-Control-Allow-Origin"] == PAGE
        assert answer["responseParameters"] == {
            f"gatewayresponse.header.{name}": f"'{value}'" for name, value in headers.items()
        }


def test_api_test_detects_answer_of_other_shape() -> None:
    body = json.loads(gateway_generated_responses.TIMEOUT.make_json_body("3b9c"))
    del body["error"]["retryable"]
    with pytest.raises(ValidationError):
        check_error(json.dumps(body))


def test_api_template_statuses_match_service_codes() -> None:
    own = {kind.code: status for kind, status in http_app.STATUS.items()}
    for kind, answer in RESPONSES.items():
        if answer.status and answer.code in own and kind != "INTEGRATION_FAILURE":
            assert own[answer.code] == answer.status, kind
    assert RESPONSES["MISSING_AUTHENTICATION_TOKEN"].status == 404


# the ways in -------------------------------------------------------------------------------------


def test_api_default_is_regional_without_cors() -> None:
    stack_resources = resources()
    rest_api = the(stack_resources, "ApiGateway::RestApi")
    assert rest_api["EndpointConfiguration"]["Types"] == ["REGIONAL"]
    assert rest_api["Parameters"] == {"endpointConfigurationTypes": "REGIONAL"}
    assert not rest_api["DisableExecuteApiEndpoint"]
    assert "Policy" not in rest_api
    assert "Access-Control" not in json.dumps(stack_resources)


@pytest.mark.parametrize(
    "props",
    [{}, {"domain": MUTUAL_TLS}, PRIVATE],
    ids=["default", "mutual TLS", "private"],
)
def test_api_overwriting_import_keeps_template_properties(props: Any) -> None:
    rest_api = the(resources(**props), "ApiGateway::RestApi")
    body, endpoint = rest_api["Body"], rest_api["EndpointConfiguration"]
    assert rest_api["Mode"] == "overwrite"
    assert body["info"]["title"] == rest_api["Name"]
    assert body["x-amazon-apigateway-binary-media-types"] == rest_api["BinaryMediaTypes"] == ["*/*"]
    assert body.get("x-amazon-apigateway-policy") == rest_api.get("Policy")
    assert body["x-amazon-apigateway-endpoint-configuration"] == {
        "disableExecuteApiEndpoint": rest_api["DisableExecuteApiEndpoint"],
        **({"vpcEndpointIds": endpoint["VpcEndpointIds"]} if "private" in props else {}),
    }


def test_api_default_endpoint_takes_modern_tls_only() -> None:
    """In the template and in the definition, which overwrites it; a regional API takes TLS 1.0 by
    default, a private one does not."""
    for props, policy in (
        ({}, "SecurityPolicy_TLS13_1_2_2021_06"),
        ({"domain": DOMAIN}, "SecurityPolicy_TLS13_1_2_2021_06"),
        ({"domain": MUTUAL_TLS}, None),
        (PRIVATE, None),
    ):
        rest_api = the(resources(**props), "ApiGateway::RestApi")
        extension = "x-amazon-apigateway-security-policy"
        assert (rest_api.get("SecurityPolicy"), rest_api["Body"].get(extension)) == (policy,) * 2
        extension = "x-amazon-apigateway-endpoint-access-mode"
        mode = rest_api.get("EndpointAccessMode")
        assert mode == rest_api["Body"].get(extension) == ("BASIC" if policy else None)


def test_api_mutual_tls_closes_default_endpoint() -> None:
    stack_resources = resources(domain=MUTUAL_TLS)
    assert the(stack_resources, "ApiGateway::RestApi")["DisableExecuteApiEndpoint"] is True
    name = the(stack_resources, "ApiGateway::DomainName")
    assert name["MutualTlsAuthentication"] == {
        "TruststoreUri": TRUST["truststore_uri"],
        "TruststoreVersion": TRUST["truststore_version"],
    }
    assert name["SecurityPolicy"] == "TLS_1_2"
    assert the(stack_resources, "ApiGateway::BasePathMapping")["BasePath"] == "memory"


def test_api_own_certificate_needs_ownership_certificate() -> None:
    text = DOMAIN["certificate_arn"] + "2"
    domain = {**DOMAIN, "mutual_tls": TRUST, "ownership_certificate_arn": text}
    name = the(resources(domain=domain), "ApiGateway::DomainName")
    assert name["OwnershipVerificationCertificateArn"] == text
    name = the(resources(domain=DOMAIN), "ApiGateway::DomainName")
    assert "OwnershipVerificationCertificateArn" not in name


def test_api_domain_has_record_in_its_zone() -> None:
    zone = "Z0123456789ABCDEFGHIJ"
    stack_resources = resources(domain={**DOMAIN, "hosted_zone_id": zone})
    record = the(stack_resources, "Route53::RecordSet")
    assert (record["Name"], record["Type"]) == ("memory.example.com.", "A")
    assert record["HostedZoneId"] == zone
    target = record["AliasTarget"]
    assert target["DNSName"]["Fn::GetAtt"][1] == "RegionalDomainName"
    assert target["HostedZoneId"]["Fn::GetAtt"][1] == "RegionalHostedZoneId"
    assert not of(resources(domain=DOMAIN), "Route53::RecordSet"), "it may be made elsewhere"


def test_api_leaves_account_log_role_alone() -> None:
    assert of(resources(), "ApiGateway::Account")
    stack_resources = resources(gateway_log_role=False)
    assert not of(stack_resources, "ApiGateway::Account")
    assert len(of(stack_resources, "IAM::Role")) == len(of(resources(), "IAM::Role")) - 1
    assert the(stack_resources, "ApiGateway::Stage")["AccessLogSetting"]


def test_api_domain_without_mutual_tls_keeps_default_endpoint() -> None:
    stack_resources = resources(domain=DOMAIN)
    assert the(stack_resources, "ApiGateway::RestApi")["DisableExecuteApiEndpoint"] is False
    assert "MutualTlsAuthentication" not in the(stack_resources, "ApiGateway::DomainName")


def test_api_private_answers_its_endpoints_only() -> None:
    rest_api = the(resources(**PRIVATE), "ApiGateway::RestApi")
    assert rest_api["EndpointConfiguration"] == {"Types": ["PRIVATE"], "VpcEndpointIds": ["vpce-1"]}
    assert rest_api["Parameters"] == {"endpointConfigurationTypes": "PRIVATE"}
    (statement,) = rest_api["Policy"]["Statement"]
    assert statement["Condition"] == {"StringEquals": {"aws:SourceVpce": ["vpce-1"]}}


def test_api_firewall_refuses_attackers_and_busy_addresses() -> None:
    stack_resources = resources(firewall=True, firewall_rate=40)
    acl = the(stack_resources, "WAFv2::WebACL")
    assert (acl["Scope"], acl["DefaultAction"]) == ("REGIONAL", {"Allow": {}})
    reputation, rate = (rule["Statement"] for rule in acl["Rules"])
    assert len(acl["Rules"]) == firewall.RULES
    assert reputation["ManagedRuleGroupStatement"] == {
        "Name": "AWSManagedRulesAmazonIpReputationList",
        "VendorName": "AWS",
    }
    assert acl["Rules"][0]["OverrideAction"] == {"None": {}}, "its own rules block"
    assert rate["RateBasedStatement"] == {
        "AggregateKeyType": "IP",
        "EvaluationWindowSec": 60,
        "Limit": 2400,
    }
    association = the(stack_resources, "WAFv2::WebACLAssociation")
    assert association["WebACLArn"]["Fn::GetAtt"][1] == "Arn"
    tenants = the(resources(firewall=True), "WAFv2::WebACL")["Rules"][1]["Statement"]
    assert tenants["RateBasedStatement"]["Limit"] == 56 * 60, "at 4 units"


def test_api_firewall_answers_as_the_service_does() -> None:
    acl = the(resources(firewall=True, cors_origins=[PAGE]), "WAFv2::WebACL")
    refusal = acl["Rules"][1]["Action"]["Block"]["CustomResponse"]
    body = acl["CustomResponseBodies"][refusal["CustomResponseBodyKey"]]
    error = check_error(body["Content"])
    assert (refusal["ResponseCode"], body["ContentType"]) == (429, "APPLICATION_JSON")
    assert error["retryable"]
    headers = {header["Name"]: header["Value"] for header in refusal["ResponseHeaders"]}
    assert headers["Retry-After"] == "60"
    assert headers["Access-Control-Allow-Origin"] == PAGE


def test_api_firewall_keeps_no_headers() -> None:
    """A sample of requests shows them, and with them credentials; so would a log."""
    stack_resources = resources(firewall=True, cors_origins=[PAGE])
    acl = the(stack_resources, "WAFv2::WebACL")
    parts = [acl, *acl["Rules"]]
    assert [part["VisibilityConfig"]["SampledRequestsEnabled"] for part in parts] == [False] * 3
    assert not of(stack_resources, "WAFv2::LoggingConfiguration")


def test_api_is_throttled_and_logs_no_body_key_or_name() -> None:
    stack_resources = resources(throttle_rate=7, throttle_burst=9, access_log_days=90)
    stage = the(stack_resources, "ApiGateway::Stage")
    (everything,) = [one for one in stage["MethodSettings"] if one["ResourcePath"] == "/*"]
    assert (everything["ThrottlingRateLimit"], everything["ThrottlingBurstLimit"]) == (7, 9)
    assert everything["DataTraceEnabled"] is False
    assert everything["LoggingLevel"] == "OFF"
    log_lines = set(json.loads(stage["AccessLogSetting"]["Format"]).values())
    assert not {v for v in log_lines if v.startswith(("$context.path", "$context.authorizer"))}
    assert not {v for v in log_lines if "apiKey" in v or "clientCert" in v or "$input" in v}
    assert the(stack_resources, "Logs::LogGroup")["RetentionInDays"] == 90


def test_api_method_throttle_fits_its_function() -> None:
    """Of what comes at once: Lambda would refuse the others."""
    stage = the(resources(), "ApiGateway::Stage")
    bursts = {
        f"{one['HttpMethod']} {one['ResourcePath'].replace('/~1', '/').replace('~1', '/')}": one
        for one in stage["MethodSettings"]
    }
    everything = bursts.pop("* /*")
    instances = {fn.name: fn.reserved_concurrency for fn in FUNCTIONS}
    for route, function in route_table().items():
        own = bursts.pop(route, everything)
        assert own["ThrottlingBurstLimit"] <= instances[function], route
        assert own["ThrottlingRateLimit"] == everything["ThrottlingRateLimit"]
        assert own["DataTraceEnabled"] is False
    assert not bursts, "methods that nobody has"


# a base path -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/v1/scopes", "/memories/list", "/docs/"])
def test_api_ignores_base_path(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    key = gateway.key(user="user:alice")
    plain = gateway.call("GET", path, key=key)
    real = support.make_proxy_event

    def behind_a_mapping(*args: Any) -> dict[str, Any]:
        """As API Gateway makes it behind memory.example.com/memory: `path` has all that was sent,
        `resource` what it was routed by."""
        event = real(*args)
        event["path"] = f"/memory{event['path']}"
        event["requestContext"] |= {"path": event["path"], "domainName": DOMAIN["name"]}
        return event

    monkeypatch.setattr(support, "make_proxy_event", behind_a_mapping)
    reply = gateway.call("GET", path, key=key)
    assert (reply.status, reply.text) == (plain.status, plain.text)
    assert reply.headers == plain.headers
    assert plain.status == (308 if path == "/docs/" else 200)


# sizes -------------------------------------------------------------------------------------------


def test_api_page_of_quotes_fits_answer(gateway: Gateway) -> None:
    """What is escaped in our JSON is escaped once more in Lambda's."""
    key = gateway.key()
    events = [user_message('"' * 60_000) for _ in range(30)]
    assert gateway.call("POST", "/api/v1/events/batch", {"events": events}, key=key).status == 200
    answers: list[dict[str, Any]] = []
    handler = importlib.import_module("functions.query.handler")
    serve = handler.serve

    def pass_through(*args: Any) -> dict[str, Any]:
        answers.append(serve(*args))
        return answers[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handler, "serve", pass_through)
        query = {"participants": "user:alice", "limit": 500}
        page = gateway.call("GET", "/memories/list", key=key, query=query)
    assert page.status == 200
    (answer,) = answers
    assert len(page.text) > 3 * 2**20
    assert len(json.dumps(answer)) < 6_000_000
    # Planted: as text it is more than Lambda lets through.
    assert len(json.dumps({**answer, "body": page.text})) > 6 * 2**20


# CORS --------------------------------------------------------------------------------------------


def handlers(preflights: bool) -> dict[str, Handler]:
    """The real ones, by route."""
    return {
        route: importlib.import_module(f"functions.{name}.handler").lambda_handler
        for route, name in route_table(preflights=preflights).items()
    }


@pytest.fixture
def port(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The real handlers behind the local gateway, with two origins permitted."""
    del gateway  # which wired them
    monkeypatch.setenv("STRANDLINE_CORS_ORIGINS", f"{PAGE} https://two.example")
    get_settings.cache_clear()
    with serving_app(GatewayApp(handlers(True), origins=get_settings().cors_origins)) as number:
        yield number


def test_api_allows_page_of_permitted_origin(gateway: Gateway, port: int) -> None:
    query = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
    preflight = call(port, "OPTIONS", "/api/v1/events", None, query)
    assert (preflight.status, preflight.body) == (204, b"")
    assert preflight.headers["access-control-allow-origin"] == PAGE
    assert "X-API-Key" in preflight.headers["access-control-allow-headers"]
    headers = {"Origin": PAGE, "X-API-Key": gateway.key()}
    answer = call(
        port, "POST", "/api/v1/events", json.dumps(user_message("Out.")).encode(), headers
    )
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (201, PAGE)
    assert "Idempotent-Replayed" in answer.headers["access-control-expose-headers"]
    reply = call(port, "GET", "/api/v1/usage", None, {"Origin": PAGE})
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (401, PAGE)
    missing = call(port, "GET", "/nowhere", None, {"Origin": PAGE})
    assert (missing.status, missing.headers["access-control-allow-origin"]) == (404, "*")


def test_api_refuses_page_of_other_origin(port: int) -> None:
    for method in ("OPTIONS", "GET"):
        answer = call(port, method, "/api/v1/usage", None, {"Origin": OTHER})
        assert "access-control-allow-origin" not in answer.headers
        assert answer.headers["vary"] == "Origin"


def test_api_without_origins_has_no_preflight_route(gateway: Gateway) -> None:
    del gateway  # which wired the handlers
    with serving_app(GatewayApp(handlers(False))) as number:
        reply = call(number, "OPTIONS", "/api/v1/events", None, {"Origin": PAGE})
    assert reply.status == 405
    assert "access-control-allow-origin" not in reply.headers


def test_api_preflight_covers_all_methods_and_headers() -> None:
    document = contract.document()
    methods = {route.partition(" ")[0] for route in route_table()}
    assert methods <= set(
        gateway_generated_responses.PREFLIGHT_HEADERS["Access-Control-Allow-Methods"].split(", ")
    )
    allowed = (
        gateway_generated_responses.PREFLIGHT_HEADERS["Access-Control-Allow-Headers"]
        .lower()
        .split(", ")
    )
    operations = contract.operations().values()
    names = {p["name"] for o in operations for p in o.get("parameters", ()) if p["in"] == "header"}
    schemes = document["components"]["securitySchemes"].values()
    names |= {s["name"] for s in schemes if "name" in s}
    assert {name.lower() for name in names} <= set(allowed)
    exposed = (
        gateway_generated_responses.make_cors_headers(("*",), None)["Access-Control-Expose-Headers"]
        .lower()
        .split(", ")
    )
    props = {
        name.lower()
        for operation in operations
        for answer in operation["responses"].values()
        for name in answer.get("headers", ())
    }
    safe = {"content-security-policy", "referrer-policy", "x-content-type-options"}
    assert props - safe <= set(exposed)


@pytest.mark.parametrize("origin", ["app.example", "https://app.example/", "https://*.example"])
def test_api_refuses_invalid_origin(origin: str) -> None:
    environment = {"STRANDLINE_CORS_ORIGINS": origin, "STRANDLINE_KEY_SECRET": "k" * 32}
    required = {"STRANDLINE_DATABASE_URL": "host=x", "STRANDLINE_BUCKET": "b"}
    with pytest.raises(Misconfigured, match="CORS_ORIGINS"):
        ServiceSettings.from_env(environment | required)


def test_api_template_has_one_origin_or_wildcard() -> None:
    assert (
        gateway_generated_responses.make_gateway_cors_headers([PAGE])["Access-Control-Allow-Origin"]
        == PAGE
    )
    assert (
        gateway_generated_responses.make_gateway_cors_headers([PAGE, OTHER])[
            "Access-Control-Allow-Origin"
        ]
        == "*"
    )
    assert gateway_generated_responses.make_gateway_cors_headers([]) == {}
