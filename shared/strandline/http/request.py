"""One request: its event parsed and checked, its caller, and what serves it."""

import base64
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote, unquote
from uuid import UUID

from pydantic import BaseModel

from strandline.auth.credentials import AuthRequest
from strandline.auth.principals import Principal, Right
from strandline.config import get_settings
from strandline.config_quotas import Quota
from strandline.db.database import NOBODY, Caller, TenantDb
from strandline.embeddings.embedder import Embedder
from strandline.errors import (
    Forbidden,
    Invalid,
    Malformed,
    NotFound,
    TooLarge,
    UnsupportedMediaType,
)
from strandline.http.schemas_idempotency import IdempotencyHeaders
from strandline.http.writer import WriterResources, make_caller
from strandline.observability import ensure_trace_id
from strandline.participants import check_names_in_address
from strandline.resources import Resources
from strandline.schemas import (
    MAX_BODY_BYTES,
    ParticipantsQuery,
    check_storable,
    parse_json,
    validate,
)
from strandline.tenants.store_audit import AuditContext

type RequiredRight = Right | Literal["issued"] | None
"""The right that a route's credential needs. `issued`: any credential of this deployment, not
looked up; None: no credential."""
_CREDENTIAL_HEADERS = ("authorization", "x-api-key", "x-jwt-token")


class Request:
    """One API Gateway proxy event (format 1.0), its caller, and the resources that serve it. Each
    event gets an object of its own: no request's state outlives it or reaches another request."""

    def __init__(
        self,
        resources: Resources,
        event: Mapping[str, Any],
        deadline: float,
        function_name: str = "",
    ) -> None:
        self.resources = resources
        self.function_name = function_name
        """The function that serves it."""
        self.deadline = deadline
        """When this request must be done, in time.monotonic() seconds."""
        self.metrics: dict[str, float] = {}
        """Metrics for the request's log line; names from `observability.METRICS`."""
        self._event = event
        self.sees_whole_tenant = False
        """Whether the request reads all of its tenant's memory."""
        self.target_tenant: str | None = None
        """The tenant that an operator acts on, if it is not the credential's own."""
        self._principal: Principal | None = None

    @property
    def operation(self) -> str:
        """The requested operation, as the routes name it: "METHOD /resource/{id}". A HEAD is served
        as a GET, and the gateway leaves the body out."""
        method = self._event.get("httpMethod")
        return f"{'GET' if method == 'HEAD' else method} {self._event.get('resource')}"

    @property
    def raw_path(self) -> str:
        """The path as it was sent, with its trailing slash if it has one."""
        return str(self._event.get("path", ""))

    @property
    def path_with_stage(self) -> str:
        """The path including the stage or the base path, which the gateway removes."""
        context: Mapping[str, object] = self._event.get("requestContext") or {}
        return str(context.get("path") or self.raw_path)

    @property
    def base_address(self) -> str:
        """The address of the service as the caller used it: scheme, host, and the path before this
        operation's, which must have no parameters. Without a slash at the end."""
        context: Mapping[str, object] = self._event.get("requestContext") or {}
        scheme = self.headers.get("x-forwarded-proto", "https")
        base = self.path_with_stage.rstrip("/").removesuffix(str(self._event.get("resource")))
        return f"{scheme}://{context.get('domainName', '')}{base}"

    @property
    def id(self) -> str:
        """API Gateway's id of this request. Every log line and error carries it."""
        context: Mapping[str, object] = self._event.get("requestContext") or {}
        return str(context.get("requestId", ""))

    @functools.cached_property
    def trace_id(self) -> str:
        """The X-Ray trace id in X-Amzn-Trace-Id. Every log line carries it, and so do the jobs that
        this request starts."""
        return ensure_trace_id(self.headers.get("x-amzn-trace-id"))

    @functools.cached_property
    def headers(self) -> dict[str, str]:
        """The request's headers by lower-case name."""
        raw: Mapping[str, str] = self._event.get("headers") or {}
        return {name.lower(): value for name, value in raw.items()}

    @property
    def _make_auth_request(self) -> AuthRequest:
        context: Mapping[str, Any] = self._event.get("requestContext") or {}
        identity: Mapping[str, Any] = context.get("identity") or {}
        return AuthRequest(self.headers, identity.get("clientCert"))

    @property
    def is_authenticated(self) -> bool:
        """Whether the route needs a credential and the request's was verified, whatever its
        rights."""
        return self._principal is not None

    @property
    def principal(self) -> Principal:
        """The verified caller, which has the right that the route needs."""
        assert self._principal is not None, "this route needs no credential"
        return self._principal

    @property
    def embedder(self) -> Embedder:
        """The embedding model of the vectors that the caller's tenant reads."""
        return self.resources.embedder_of(self.principal.reading_space)

    def authorize(self, right: RequiredRight) -> None:
        """Authenticate the caller and check the right that its route needs. Raises Unauthorized,
        Forbidden or Unavailable."""
        if right == "issued":
            self.resources.authenticator.require_issued_credential(self._make_auth_request)
            self._refuse_cross_site_forgery()
        elif right is not None:
            principal = self.resources.authenticator.authenticate(
                self._make_auth_request, self.deadline
            )
            # set before the right is checked: a refusal is audited with the principal
            self._principal = principal
            self._refuse_cross_site_forgery()
            principal.require_right(right)

    def _refuse_cross_site_forgery(self) -> None:
        """Refuse what a foreign page could have a browser send that holds a client certificate, and
        that may change something: a request of another origin than those in the settings, or one
        whose content type needs no preflight. Raises Forbidden or UnsupportedMediaType."""
        if self._event.get("httpMethod") in ("GET", "HEAD"):
            return  # changes nothing, and no page may read its answer
        if not self.resources.authenticator.uses_client_certificates_alone(self._make_auth_request):
            return
        origin = self.headers.get("origin")
        if origin is not None and origin not in get_settings().cors_origins:
            raise Forbidden(
                "Origin: pages of this origin may not call with a client certificate. An operator "
                "can name it in STRANDLINE_CORS_ORIGINS; `*` is not enough."
            )
        content_type = self.headers.get("content-type", "")
        is_json = content_type.partition(";")[0].strip().lower() == "application/json"
        if not is_json and (content_type or self._event.get("body")):
            raise UnsupportedMediaType(
                "Content-Type: with a client certificate as its only credential a request must be "
                "`application/json`."
            )

    def authenticate_without_lookup(self) -> Principal:
        """The caller, for a route that does not look the credential up. Raises Unauthorized or
        Unavailable."""
        return self.resources.authenticator.authenticate(self._make_auth_request, self.deadline)

    def find_last_known_principal(self) -> Principal | None:
        """The caller as it was last known, while the database is away: see
        `Authenticator.get_last_known_principal`."""
        return self.resources.authenticator.get_last_known_principal(self._make_auth_request)

    def authenticate(self) -> Principal:
        """The caller, whatever its rights, for a route that performs operations which check them.
        Raises Unauthorized, Forbidden or Unavailable."""
        self._principal = self.resources.authenticator.authenticate(
            self._make_auth_request, self.deadline
        )
        return self._principal

    def make_event_of_operation(
        self,
        operation: str,
        path: Mapping[str, str],
        query: Mapping[str, Sequence[str]],
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
    ) -> dict[str, Any]:
        """The event of another operation, with this request's credential, id and trace, for a route
        that performs operations in its caller's name. `headers` are by lower-case name."""
        method, _, resource = operation.partition(" ")
        own = {name: self.headers[name] for name in _CREDENTIAL_HEADERS if name in self.headers}
        return {
            "resource": resource,
            "path": resource,
            "httpMethod": method,
            "headers": {
                **own,
                "content-type": "application/json",
                "x-amzn-trace-id": f"Root={self.trace_id}",
                **headers,
            },
            "multiValueQueryStringParameters": {n: [*v] for n, v in query.items()} or None,
            "pathParameters": {name: quote(value, safe="") for name, value in path.items()},
            "requestContext": self._event.get("requestContext"),
            "body": None if body is None else json.dumps(body),
            "isBase64Encoded": False,
        }

    def spend_quota(self, quota: Quota, units: int) -> None:
        """Spend `units` of the tenant's quota. Raises QuotaExceeded, TooLarge or Unavailable."""
        self.resources.quotas.spend(self.principal.tenant, quota, units, self.deadline)

    def connect_reader(
        self, query: ParticipantsQuery | None, *participants: Sequence[str] | None
    ) -> TenantDb:
        """The database for a read on behalf of the caller and all participants: those of the query
        string, which is None on a route without them, and further ones. Where the tenant's agents
        share, agents beside users are left out. Raises Invalid, and Forbidden for an `everybody`
        that is not the credential's to say."""
        principal = self.principal
        query = query or ParticipantsQuery()
        named = [name for names in (query.participants, *participants) for name in names or ()]
        viewer = principal.resolve_viewer(named, everybody=query.everybody)
        self.sees_whole_tenant = not viewer
        caller = Caller(principal.tenant, viewer, principal.user or NOBODY)
        return self.resources.database.connect_as(caller, self.deadline)

    @property
    def idempotency_key(self) -> str | None:
        """The request's Idempotency-Key, or None. Raises Invalid."""
        key = self.headers.get("idempotency-key")
        if key is None:
            return None
        return validate(IdempotencyHeaders, {"Idempotency-Key": key}).idempotency_key

    def connect_writer(self) -> TenantDb:
        """The database on behalf of the caller as a writer: see `make_caller`."""
        return self.resources.database.connect_as(make_caller(self.principal), self.deadline)

    @property
    def writer(self) -> WriterResources:
        """What a write on behalf of the caller needs, within this request's time."""
        return WriterResources.from_resources(self.resources, self.principal, self.deadline)

    def connect_operator(self, tenant: str | None = None) -> TenantDb:
        """The database in the tenant that an operator acts on (by default the credential's own),
        with a viewer that is a member of no scope and so sees no memory."""
        self.target_tenant = tenant
        caller = Caller(tenant or self.principal.tenant, (NOBODY,))
        return self.resources.database.connect_as(caller, self.deadline)

    @property
    def audit_context(self) -> AuditContext:
        """Who acts through which route, for the audit trail."""
        principal = self.principal
        return AuditContext(
            self.operation, principal.tenant, principal.key_id or None, principal.user, self.id
        )

    @property
    def path_parameters(self) -> dict[str, str]:
        """The parameters of the path by name, percent-decoded."""
        raw: Mapping[str, str] = self._event.get("pathParameters") or {}
        return {name: unquote(value) for name, value in raw.items()}

    def path_parameter(self, name: str) -> str:
        """One parameter of the path, percent-decoded."""
        return self.path_parameters[name]

    def path_id(self, name: str) -> UUID:
        """An id in the path. Raises NotFound for text that is not a UUID: no row can have that
        id."""
        try:
            return UUID(self.path_parameter(name))
        except ValueError:
            raise NotFound from None

    @property
    def has_body(self) -> bool:
        """Whether the request has a body and its method gives a body a meaning; in a GET it has
        none."""
        return bool(self._event.get("body")) and not self.operation.startswith("GET ")

    @property
    def has_query(self) -> bool:
        """Whether the URL has a query string."""
        return bool(self._event.get("multiValueQueryStringParameters"))

    def parse_query[Model: BaseModel](self, model: type[Model]) -> Model:
        """Parse the query string. Raises Invalid naming a parameter, also one that is repeated."""
        lists: set[str] = {"participants", *getattr(model, "repeated_parameters", ())}
        raw: Mapping[str, list[str]] = self._event.get("multiValueQueryStringParameters") or {}
        field_names = {field.alias or name for name, field in model.model_fields.items()}
        for name, values in raw.items():
            if name in field_names and name not in lists and len(values) > 1:
                raise Invalid(f"{name}: is given {len(values)} times; send it once", field=name)
        check_names_in_address(raw.get("participants") or ())
        parameters = {n: v if n in lists else v[-1] for n, v in raw.items()}
        return validate(model, check_storable(parameters))

    def parse_json(self) -> Any:
        """Parse the body as strict JSON. Raises TooLarge, Malformed or Invalid."""
        body = str(self._event.get("body") or "")
        is_base64 = bool(self._event.get("isBase64Encoded"))
        data = _decode_base64_body(body) if is_base64 else body.encode("utf-8", "surrogatepass")
        if len(data) > MAX_BODY_BYTES:
            raise TooLarge(
                f"body: {len(data)} bytes, at most {MAX_BODY_BYTES}. Send fewer events at "
                "once, or put a large payload into the store by itself: POST /api/v1/uploads.",
                field="body",
                limit=MAX_BODY_BYTES,
            )
        return parse_json(data)

    def parse_body[Model: BaseModel](self, model: type[Model]) -> Model:
        """Parse the body as `model`. Raises as `parse_json` does, and Invalid naming a field."""
        return validate(model, check_storable(self.parse_json()))


def _decode_base64_body(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise Malformed(
            "body: isBase64Encoded is true, but it is not base64", field="body"
        ) from None
