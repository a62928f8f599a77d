"""How large what the jobs' state machine passes on is, by its definition."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

MAX_STATE_BYTES = 256 * 1024
"""The most that a state of Step Functions may be given, give or pass on."""
_ENVELOPE = {"ExecutedVersion": "123456", "SdkHttpMetadata": "x" * 2000, "StatusCode": 200}
"""What comes with a function's answer, and is larger than what AWS's guide shows."""


def state_sizes(
    definition: Mapping[str, Any],
    run_input: Mapping[str, Any],
    plan: Mapping[str, Any],
    items: Sequence[Any],
    totals: Mapping[str, Any],
) -> dict[str, int]:
    """Bytes that each state is given, gives and passes on at most, by its name and which of them it
    is: of a run whose plan gave `plan` and `items` and whose finish gives `totals`, where all items
    succeed and where all of them fail."""
    states = definition["States"]
    child = states["map"]["ItemProcessor"]
    task, failure = child["States"][child["StartAt"]], child["States"]["ShardFailed"]
    assert [catch["Next"] for catch in task["Catch"]] == ["ShardFailed"]
    answers = {"plan": {**_ENVELOPE, "Payload": plan}, "finish": {**_ENVELOPE, "Payload": totals}}
    sizes = {f"item {n}": _bytes(item) for n, item in enumerate(items)}
    arguments: Any = run_input
    for name in ("plan", "HasShards", "map", "finish"):
        sizes[f"{name}, input"] = _bytes(arguments)
        if name == "map":
            outcome = _passed_on(task, items[0], {**_ENVELOPE, "Payload": {}})
            failed = {"Error": failure["Error"], "Cause": failure["Cause"]}
            sizes["map, all succeed"] = _bytes([outcome] * len(items))
            sizes["map, all fail"] = _bytes([failed] * len(items))
            arguments = _passed_on(states[name], arguments, [outcome] * len(items))
        elif name in answers:
            sizes[f"{name}, result"] = _bytes(answers[name])
            arguments = _passed_on(states[name], arguments, answers[name])
        sizes[f"{name}, output"] = _bytes(arguments)
    return sizes


def _passed_on(state: Mapping[str, Any], settings: Any, result: Any) -> Any:
    """What a state passes on of what it was given and what it gives, by the fields that the
    definition uses."""
    if "ResultSelector" in state:
        result = {
            name.removesuffix(".$"): _pick(path, result)
            for name, path in state["ResultSelector"].items()
        }
    place = state.get("ResultPath", "$")
    if place == "$":
        settings = result
    elif place is not None:
        settings = {**settings, place.removeprefix("$."): result}
    output_path = state.get("OutputPath", "$")
    return {} if output_path is None else _pick(output_path, settings)


def _pick(path: str, value: Any) -> Any:
    for name in path.removeprefix("$").split("."):
        value = value[name] if name else value
    return value


def _bytes(value: Any) -> int:
    return len(json.dumps(value).encode())
