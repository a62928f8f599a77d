"""Writing over HTTP: one event, or a batch of them."""

from collections.abc import Sequence

from strandline.config import settings
from strandline.errors import Conflict, Forbidden, Invalid
from strandline.http.app import Answer, Request, Route, answer, error_body, status_of
from strandline.log.append import Appended, append, asker
from strandline.log.schemas import (
    AppendHeaders,
    AppendRequest,
    BatchAnswer,
    BatchItem,
    BatchRequest,
    Receipt,
    UploadOut,
    UploadRequest,
    UploadStored,
)
from strandline.log.uploads import begin_upload
from strandline.schemas import Refusal, validated

_REPLAYED = "Idempotent-Replayed"


def post_event(request: Request) -> Answer:
    """Append one event: 201 and its receipt, the same for a replay."""
    key = idempotency_key(request)
    (result,) = append_all(request, [(request.json(), key)], atomic=False)
    if result.error is not None or result.receipt is None:
        raise result.error or Invalid()
    return answer(result.receipt, 201, {_REPLAYED: "true"} if result.replayed else None)


def post_batch(request: Request) -> Answer:
    """Append up to 500 events in one transaction: 200 and a result each. An atomic batch that holds
    a refused item is 422 and stores nothing."""
    key = idempotency_key(request)
    batch = validated(BatchRequest, request.json())  # its items are checked one by one
    bodies = [(body, key and f"{key}#{n}") for n, body in enumerate(batch.events)]
    results = append_all(request, bodies, atomic=batch.atomic)
    items = [_item(result, request.id) for result in results]
    failed = sum(result.error is not None for result in results)
    if batch.atomic and failed:
        raise Invalid(
            "events: the batch is atomic and some of it was refused; nothing was stored",
            field="events",
            results=[item.model_dump(mode="json") for item in items],
        )
    body = BatchAnswer(stored=len(items) - failed, failed=failed, results=items)
    return answer(body, 200, _replays(results))


def post_upload(request: Request) -> Answer:
    """Ask where to put a payload that is larger than a request: 201 with a presigned URL for one
    PUT, 200 if it is stored already. What was put there is the asker's alone to cite, and nobody
    can fetch it (404), until an event cites it as `blob`: `{"cid"}`. Size and SHA-256 are verified
    then. Text is indexed as content is, its first 1 MiB."""
    service = request.service
    access = service.database.access(asker(request.principal), request.deadline)
    begun = begin_upload(
        access,
        service.blobs,
        service.quotas,
        request.body(UploadRequest),
        settings(),
        request.deadline,
    )
    return answer(begun, 201 if isinstance(begun, UploadOut) else 200)


def append_all(
    request: Request, bodies: Sequence[tuple[object, str | None]], *, atomic: bool
) -> list[Appended]:
    """Append each body under its Idempotency-Key on behalf of who asks, and count them."""
    service = request.service
    results = append(
        service.database,
        service.blobs,
        service.hints,
        service.quotas,
        request.principal,
        bodies,
        atomic=atomic,
        deadline=request.deadline,
    )
    request.counted["EventsAppended"] = sum(result.created for result in results)
    return results


def _item(result: Appended, request_id: str) -> BatchItem:
    if result.error is None:
        return BatchItem(status=201, event=result.receipt)
    said = Refusal.model_validate(error_body(result.error, request_id))
    return BatchItem(status=status_of(result.error), error=said)


def _replays(results: list[Appended]) -> dict[str, str]:
    """`true` when the whole answer is one given before, else the places of the items that are."""
    places = [n for n, result in enumerate(results) if result.replayed]
    if not places:
        return {}
    return {_REPLAYED: "true" if len(places) == len(results) else ",".join(map(str, places))}


def idempotency_key(request: Request) -> str | None:
    """The request's, if it has one. Raises Invalid."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    return validated(AppendHeaders, {"Idempotency-Key": key}).idempotency_key


ROUTES = {
    "POST /api/v1/events": Route(
        post_event,
        "write",
        {201: Receipt},
        body=AppendRequest,
        headers=AppendHeaders,
        gives={_REPLAYED: "`true` when this event was stored before, under the same key."},
        errors=(Forbidden, Conflict),
    ),
    "POST /api/v1/events/batch": Route(
        post_batch,
        "write",
        {200: BatchAnswer},
        body=BatchRequest,
        headers=AppendHeaders,
        gives={_REPLAYED: "`true`, or the places of the items that were stored before: `0,2`."},
    ),
    "POST /api/v1/uploads": Route(
        post_upload,
        "write",
        {201: UploadOut, 200: UploadStored},
        body=UploadRequest,
    ),
}
