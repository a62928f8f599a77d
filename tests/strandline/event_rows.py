"""A request's draft, its event and its row."""

import json
from collections.abc import Mapping
from typing import Any

from strandline.auth.principals import Principal
from strandline.log.event_builder import NewEvent, build_event
from strandline.log.event_draft import EventDraft, build_draft
from strandline.log.schemas_append import AppendRequest

BODY = {"participants": ["user:alice", "agent:helper"], "role": "user", "content": "x"}


def draft_of(body: Mapping[str, object]) -> EventDraft:
    """The draft of a request."""
    principal = Principal("acme", None, frozenset({"write"}))
    return build_draft(principal, AppendRequest.model_validate(body), None)


def event_of(draft: EventDraft) -> NewEvent:
    """The event of a request without edges."""
    return build_event(draft, 0, [])


def row_of(draft: EventDraft) -> dict[str, Any]:
    """Its row, as the database gives it."""
    return json.loads(json.dumps(event_of(draft).as_json()))
