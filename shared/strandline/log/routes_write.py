"""HTTP routes that append one event or a batch, and begin an upload."""

from strandline.config import get_settings
from strandline.errors import Conflict, Forbidden, Gone, Invalid
from strandline.http.app import error_body, find_http_status
from strandline.http.request import Request
from strandline.http.routes_and_responses import (
    Response,
    Route,
    json_response,
    replayable_response,
)
from strandline.http.schemas_idempotency import REPLAYED_HEADER, IdempotencyHeaders
from strandline.log.append import append
from strandline.log.append_state import AppendResult
from strandline.log.presigned_uploads import begin_upload
from strandline.log.schemas_append import (
    AppendRequest,
    BatchAnswer,
    BatchItemResult,
    BatchRequest,
    PayloadAlreadyStored,
    Receipt,
    UploadInstructions,
    UploadRequest,
)
from strandline.schemas import Refusal, validate


def post_event(request: Request) -> Response:
    """Append one event: 201 and its receipt; a replay returns the same."""
    key = request.idempotency_key
    (result,) = append(request.writer, [(request.parse_json(), key)])
    request.metrics["EventsAppended"] = int(result.is_new)
    if result.error is not None or result.receipt is None:
        raise result.error or Invalid()
    return replayable_response(result.receipt, 201, is_replay=result.is_replay)


def post_batch(request: Request) -> Response:
    """Append up to 500 events in one transaction: 200 and one result per event. An atomic batch
    with a refused item is answered 422 and stores nothing."""
    key = request.idempotency_key
    batch = validate(BatchRequest, request.parse_json())  # items are validated one by one
    bodies = [(body, key and f"{key}#{n}") for n, body in enumerate(batch.events)]
    results = append(request.writer, bodies, atomic=batch.atomic)
    request.metrics["EventsAppended"] = sum(result.is_new for result in results)
    items = [_to_batch_item(result, request.id) for result in results]
    failed = sum(result.error is not None for result in results)
    if batch.atomic and failed:
        raise Invalid(
            "events: the batch is atomic and some items were refused; nothing was stored. Correct "
            "the items that `results` names, and send it again",
            field="events",
            results=[item.model_dump(mode="json") for item in items],
        )
    body = BatchAnswer(stored=len(items) - failed, failed=failed, results=items)
    return json_response(body, 200, _make_replay_headers(results))


def post_upload(request: Request) -> Response:
    """Begin the upload of a payload that is larger than a request: 201 with a presigned URL for one
    PUT, or 200 if it is already stored. Until an event cites the payload as `blob`: `{"cid"}`, only
    its uploader may cite it and nobody can download it (404). The citation verifies size and
    SHA-256. Text is indexed like content, its first 1 MiB."""
    resources = request.resources
    upload = begin_upload(
        request.connect_writer(),
        resources.blobs,
        resources.quotas,
        request.parse_body(UploadRequest),
        get_settings(),
        request.deadline,
    )
    return json_response(upload, 201 if isinstance(upload, UploadInstructions) else 200)


def _to_batch_item(result: AppendResult, request_id: str) -> BatchItemResult:
    if result.error is None:
        return BatchItemResult(status=201, event=result.receipt)
    details = Refusal.model_validate(error_body(result.error, request_id))
    return BatchItemResult(status=find_http_status(result.error), error=details)


def _make_replay_headers(results: list[AppendResult]) -> dict[str, str]:
    """The header that marks replays: `true` if all results are replays, else the positions of those
    that are."""
    positions = [n for n, result in enumerate(results) if result.is_replay]
    if not positions:
        return {}
    return {
        REPLAYED_HEADER: "true" if len(positions) == len(results) else ",".join(map(str, positions))
    }


ROUTES = {
    "POST /api/v1/events": Route(
        post_event,
        "write",
        {201: Receipt},
        body=AppendRequest,
        headers=IdempotencyHeaders,
        response_headers={
            REPLAYED_HEADER: "`true` when this event was already stored under the same key."
        },
        errors=(Forbidden, Conflict, Gone),
    ),
    "POST /api/v1/events/batch": Route(
        post_batch,
        "write",
        {200: BatchAnswer},
        body=BatchRequest,
        headers=IdempotencyHeaders,
        response_headers={
            REPLAYED_HEADER: "`true`, or the positions of items that were already stored: `0,2`."
        },
    ),
    "POST /api/v1/uploads": Route(
        post_upload,
        "write",
        {201: UploadInstructions, 200: PayloadAlreadyStored},
        body=UploadRequest,
    ),
}
