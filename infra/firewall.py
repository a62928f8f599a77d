"""A firewall of AWS WAF in front of the API: it stops strangers before they cost an invocation."""

from collections.abc import Sequence

from aws_cdk import aws_wafv2 as wafv2
from constructs import Construct

from infra.settings import StackSettings
from strandline.http.gateway_generated_responses import (
    GatewayResponse,
    make_gateway_cors_headers,
)

WINDOW_SECONDS = 60
"""The shortest that AWS WAF counts over."""
RULES = 2
"""Rules that AWS charges for. A test counts them."""
_TOO_MANY_FROM_ADDRESS = GatewayResponse(
    "throttled",
    "More requests than this deployment takes from one address. Try again in a minute.",
    429,
    {"quota": "address"},
    retry_after=WINDOW_SECONDS,
)
_BODY = "throttled"


class Firewall(Construct):
    """A web ACL that refuses addresses which AWS knows to attack, and those that send more than
    `settings.firewall_requests_a_second`. It keeps no samples of requests and no log: both would
    show the headers, and so credentials. `arn` is the web ACL's."""

    def __init__(self, scope: Construct, id: str, settings: StackSettings) -> None:
        super().__init__(scope, id)
        body = wafv2.CfnWebACL.CustomResponseBodyProperty(
            content_type="APPLICATION_JSON",
            # The answer is the same for all, so it cannot name the request.
            content=_TOO_MANY_FROM_ADDRESS.make_json_body(""),
        )
        acl = wafv2.CfnWebACL(
            self,
            "Acl",
            scope="REGIONAL",
            description=f"Before the API of {settings.stack_name}",
            default_action={"allow": {}},
            custom_response_bodies={_BODY: body},
            visibility_config=_make_visibility(settings, "all"),
            rules=_make_rules(settings),
        )
        self.arn = acl.attr_arn


def _make_rules(settings: StackSettings) -> Sequence[wafv2.CfnWebACL.RuleProperty]:
    reputation = wafv2.CfnWebACL.ManagedRuleGroupStatementProperty(
        vendor_name="AWS", name="AWSManagedRulesAmazonIpReputationList"
    )
    rate = wafv2.CfnWebACL.RateBasedStatementProperty(
        aggregate_key_type="IP",
        limit=int(settings.firewall_requests_a_second * WINDOW_SECONDS),
        evaluation_window_sec=WINDOW_SECONDS,
    )
    return [
        wafv2.CfnWebACL.RuleProperty(
            name="reputation",
            priority=0,
            override_action={"none": {}},  # its rules block by themselves
            statement=wafv2.CfnWebACL.StatementProperty(managed_rule_group_statement=reputation),
            visibility_config=_make_visibility(settings, "reputation"),
        ),
        wafv2.CfnWebACL.RuleProperty(
            name="rate",
            priority=1,
            action=wafv2.CfnWebACL.RuleActionProperty(block=_make_refusal(settings)),
            statement=wafv2.CfnWebACL.StatementProperty(rate_based_statement=rate),
            visibility_config=_make_visibility(settings, "rate"),
        ),
    ]


def _make_refusal(settings: StackSettings) -> wafv2.CfnWebACL.BlockActionProperty:
    """An answer in the shape of every error, instead of the gateway's for WAF_FILTERED, which says
    that it is no use to try again."""
    headers = _TOO_MANY_FROM_ADDRESS.retry_after_header | (
        make_gateway_cors_headers(settings.cors_origins)
    )
    return wafv2.CfnWebACL.BlockActionProperty(
        custom_response=wafv2.CfnWebACL.CustomResponseProperty(
            response_code=429,
            custom_response_body_key=_BODY,
            response_headers=[
                wafv2.CfnWebACL.CustomHTTPHeaderProperty(name=name, value=value)
                for name, value in headers.items()
            ],
        )
    )


def _make_visibility(
    settings: StackSettings, name: str
) -> wafv2.CfnWebACL.VisibilityConfigProperty:
    return wafv2.CfnWebACL.VisibilityConfigProperty(
        cloud_watch_metrics_enabled=True,
        metric_name=f"{settings.stack_name}-{name}",
        sampled_requests_enabled=False,
    )
