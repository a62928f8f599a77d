"""The toolset `admin`: the state of the service and its background work, for a tenant's admins."""

from strandline.mcp.argument_schemas import choice_schema, integer_schema, text_schema
from strandline.mcp.arguments import Arguments, WrongArgument
from strandline.mcp.rendering import fence_json
from strandline.mcp.tool_types import Tool, ToolContext

_LIST_LIMIT = "20"


def get_health_and_index_state(context: ToolContext, arguments: Arguments) -> str:
    """Whether the service and what it depends on are up, and what the topic index waits for."""
    del arguments
    health = context.operations.call("GET /api/v1/health")
    topics = context.operations.call("GET /api/v1/admin/topics")
    return fence_json({"health": health, "topic_index": topics})


def list_start_or_retry_jobs(context: ToolContext, arguments: Arguments) -> str:
    """List, start or retry background jobs."""
    action = arguments.get("action", "list")
    if action == "list":
        query = {"limit": [_LIST_LIMIT]}
        return fence_json(context.operations.call("GET /api/v1/admin/jobs", query=query))
    if "job" not in arguments:
        raise WrongArgument("job: name the job to start, or give the id of the job to retry")
    path = {"job": arguments["job"]}
    suffix = "/retry" if action == "retry" else ""
    return fence_json(
        context.operations.call(f"POST /api/v1/admin/jobs/{{job}}{suffix}", path=path)
    )


def list_compare_or_activate_snapshots(context: ToolContext, arguments: Arguments) -> str:
    """List, show, compare or activate snapshots of the topic index."""
    action = arguments.get("action", "list")
    if action == "list":
        query = {"limit": [_LIST_LIMIT]}
        return fence_json(context.operations.call("GET /api/v1/admin/snapshots", query=query))
    if "version" not in arguments:
        raise WrongArgument("version: give the number of a snapshot")
    path, place = {"version": str(arguments["version"])}, "/api/v1/admin/snapshots/{version}"
    if action == "activate":
        return fence_json(context.operations.call(f"POST {place}/activate", path=path))
    if action == "show":
        return fence_json(context.operations.call(f"GET {place}", path=path))
    if "from" not in arguments:
        raise WrongArgument("from: give the number of the snapshot to compare with")
    query = {"from": [str(arguments["from"])], "limit": [_LIST_LIMIT]}
    return fence_json(context.operations.call(f"GET {place}/difference", path=path, query=query))


def get_quota_usage(context: ToolContext, arguments: Arguments) -> str:
    """The tenant's use of its quotas."""
    del arguments
    return fence_json(context.operations.call("GET /api/v1/usage"))


TOOLS = (
    Tool(
        "memory_status",
        "Whether the service is up, what fails in the background, and what the topic index "
        "waits for.",
        ("admin",),
        get_health_and_index_state,
    ),
    Tool(
        "memory_jobs",
        "Background jobs: list them, start one by name, or retry a failed one by id.",
        ("admin",),
        list_start_or_retry_jobs,
        {
            "action": choice_schema("list (default), start or retry.", "list", "start", "retry"),
            "job": text_schema(
                "start: the job's name, such as builder; retry: the failed job's id."
            ),
        },
        is_read_only=False,
        is_additive=False,
    ),
    Tool(
        "memory_snapshots",
        "Snapshots of the topic index: list, show, difference (from), or activate an older one.",
        ("admin",),
        list_compare_or_activate_snapshots,
        {
            "action": choice_schema(
                "list (default), show, difference or activate.",
                *("list", "show", "difference", "activate"),
            ),
            "version": integer_schema("The snapshot's number."),
            "from": integer_schema("difference: the number of the snapshot to compare with."),
        },
        is_read_only=False,
        is_additive=False,
    ),
    Tool(
        "memory_usage",
        "What the tenant uses of its quotas and model budget.",
        ("read",),
        get_quota_usage,
        is_for_bound=False,
    ),
)
