"""Finds the handler of a path, as API Gateway's resource tree does."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from strandline.local.lambda_context import Handler


@dataclass(frozen=True)
class Resource:
    """One path of the API in API Gateway's syntax, with its methods."""

    path: str
    methods: dict[str, Handler] = field(default_factory=dict[str, Handler])

    def handler(self, method: str) -> Handler | None:
        """The handler of `method`, or of ANY."""
        return self.methods.get(method) or self.methods.get("ANY")


@dataclass(frozen=True)
class Match:
    """The resource of a path, and the values of its path parameters."""

    resource: Resource
    parameters: dict[str, str]


class Routes:
    """The table `{"METHOD /path/{id}": handler}`, searched as API Gateway does.

    At each segment a literal beats `{parameter}`, which beats the greedy `{proxy+}`. The path alone
    selects the resource: a method it lacks is not searched in a less specific one. A slash at the
    end makes no difference. Segments are compared and passed on as they were sent, without
    percent-decoding, so an encoded slash never separates.
    """

    def __init__(self, table: Mapping[str, Handler]) -> None:
        resources: dict[str, Resource] = {}
        for key, handler in table.items():
            method, _, path = key.partition(" ")
            if not method.isupper() or not path.startswith("/"):
                raise ValueError(f"not a route: {key!r}; write 'METHOD /path' or 'ANY /path'")
            resources.setdefault(path, Resource(path)).methods[method] = handler
        self._resources = [
            (_segments(resource.path), resource)
            for resource in sorted(resources.values(), key=lambda r: _precedence(r.path))
        ]

    def find(self, path: str) -> Match | None:
        """The most specific resource for `path`, or None."""
        segments = _segments(path)
        for pattern, resource in self._resources:
            parameters = _bind(pattern, segments)
            if parameters is not None:
                return Match(resource, parameters)
        return None


def _segments(path: str) -> list[str]:
    return path.strip("/").split("/") if path.strip("/") else []


def _precedence(path: str) -> list[tuple[int, str]]:
    """A sort key that puts the more specific path first, segment by segment."""
    return [(_rank(segment), segment) for segment in _segments(path)]


def _rank(segment: str) -> int:
    if not segment.startswith("{"):
        return 0
    return 2 if segment.endswith("+}") else 1


def _bind(pattern: list[str], segments: list[str]) -> dict[str, str] | None:
    """The path parameters if `segments` match `pattern`; a parameter does not match an empty
    segment."""
    greedy = bool(pattern) and _rank(pattern[-1]) == 2
    if len(segments) < len(pattern) or (len(segments) > len(pattern) and not greedy):
        return None
    parameters: dict[str, str] = {}
    for position, expected in enumerate(pattern):
        value = segments[position]
        if _rank(expected) == 2:
            value = "/".join(segments[position:])
        if (_rank(expected) == 0 and expected != value) or not value:
            return None
        if _rank(expected):
            parameters[expected.strip("{+}")] = value
    return parameters
