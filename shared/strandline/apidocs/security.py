"""How the OpenAPI document names the credentials that a deployment accepts."""

import itertools
from collections.abc import Mapping, Sequence

from strandline.config_auth import AuthSettings
from strandline.http.routes_and_responses import Route

SECURITY_SCHEMES: Mapping[str, Mapping[str, str]] = {
    "ApiKey": {
        "type": "apiKey",
        "in": "header",
        "name": "X-API-Key",
        "description": "The whole key, as it was shown when it was created.",
    },
    "Bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key or a JWT, as `Authorization: Bearer`.",
    },
    "Jwt": {
        "type": "apiKey",
        "in": "header",
        "name": "X-JWT-Token",
        "description": "A JWT of this deployment's issuer, for its audience.",
    },
    "ClientCertificate": {
        "type": "mutualTLS",
        "description": "A certificate of a registered subject, sent in the TLS handshake.",
    },
}
type SecurityAlternatives = Sequence[tuple[str, ...]]
"""Alternatives; each lists the security schemes that a request needs together."""
ALL_SCHEMES: SecurityAlternatives = [(name,) for name in SECURITY_SCHEMES]


def list_security_alternatives(settings: AuthSettings) -> SecurityAlternatives:
    """The security alternatives under these settings."""
    methods = [
        ("ApiKey", "Bearer") if settings.key_secret else (),
        ("Jwt", "Bearer") if settings.jwt_enabled else (),
        ("ClientCertificate",) if settings.client_certificates else (),
    ]
    enabled = [method for method in methods if method]
    if not settings.auth_require_all:
        return [(name,) for name in dict.fromkeys(itertools.chain(*enabled))]
    # One Authorization header carries one credential.
    return [
        combination
        for combination in itertools.product(*enabled)
        if len(set(combination)) == len(combination)
    ]


def describe_credential(route: Route) -> str:
    """Which credential a route needs, as a sentence."""
    if route.right is None:
        return "Needs no credential."
    if route.right == "issued":
        return "Needs any credential of this deployment, which is not looked up."
    return f"Needs a credential with the right `{route.right}`."


def list_security_requirements(
    route: Route, security: SecurityAlternatives
) -> list[dict[str, list[str]]]:
    """The security requirements of a route, with the right that it needs as their scope."""
    if route.right is None:
        return []
    rights = [] if route.right == "issued" else [str(route.right)]
    return [dict.fromkeys(names, rights) for names in security]
