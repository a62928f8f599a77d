"""What the tools of the toolset `graph` do with the fields of topics."""

from typing import Any

from strandline.mcp.answer_size import ask_for_fitting_page
from strandline.mcp.arguments import Arguments, pick
from strandline.mcp.rendering import fence_lines, field_line, revision_line
from strandline.mcp.tool_types import ToolContext

_FIELDS = "/api/v1/graph/topics/{topic_id}/fields"


def get_fields(context: ToolContext, arguments: Arguments) -> str:
    """The fields of a topic with their values, or the revisions of one field."""
    if "field" in arguments:
        return _get_history(context, arguments)
    path = {"topic_id": arguments["topic_id"]}
    options = pick(arguments, "as_of", after_field="cursor")
    query = {name: [str(value)] for name, value in options.items()}
    query |= context.get_read_participants(arguments)

    def ask(limit: int) -> Any:
        return context.operations.call(
            f"GET {_FIELDS}", path=path, query={**query, "limit": [str(limit)]}
        )

    page, lines = ask_for_fitting_page(
        ask, lambda page: [field_line(f) for f in page["fields"]], arguments.get("limit", 50)
    )
    if not lines:
        return "This topic has no fields."
    after = page["next_after_field"]
    # the name of a field is stored text, so it stands in the block
    return fence_lines([*lines, *([f"More: cursor={after}"] if after else [])])


def _get_history(context: ToolContext, arguments: Arguments) -> str:
    path = {"topic_id": arguments["topic_id"], "field": arguments["field"]}
    options = pick(arguments, "as_of", "cursor")
    query = {name: [str(value)] for name, value in options.items()}
    query |= context.get_read_participants(arguments)

    def ask(limit: int) -> Any:
        return context.operations.call(
            f"GET {_FIELDS}/{{field}}", path=path, query={**query, "limit": [str(limit)]}
        )

    page, lines = ask_for_fitting_page(
        ask, lambda page: [revision_line(r) for r in page["history"]], arguments.get("limit", 20)
    )
    more = f"\nMore: cursor={page['next_cursor']}" if page["next_cursor"] else ""
    return fence_lines([field_line(page), *lines]) + more


def set_field(context: ToolContext, arguments: Arguments) -> str:
    """State the value of a topic's field."""
    names = ("valid_from", "why_changed", "impact_expected", "field_type", "ref_topic_id")
    body = context.get_author(arguments) | pick(arguments, *names) | {"value": arguments["value"]}
    path = {"topic_id": arguments["topic_id"], "field": arguments["field"]}
    revision = context.operations.call(f"POST {_FIELDS}/{{field}}", body, path=path)
    return (
        f"Revision {revision['revision']} of {revision['topic_id']} holds from "
        f"{revision['valid_from']} (event {revision['event_id']})."
    )
