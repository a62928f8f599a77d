"""The layout of a community in a picture: topics, entities and statements in three columns, and the
lines between them."""

import textwrap
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from strandline.local.graph_reader import Edge, Graph, Key

PADDING = 16
PANEL_WIDTH = 948
_LEFTS = (PADDING, 276, 592)
_WIDTHS = (190, 180, 340)
COLUMNS = {"topic": 0, "entity": 1, "event": 2, "fact": 2, "decision": 2, "relation": 2}
"""The column of each type."""
_TOP, _BOTTOM = 40, 16
_REST = 18
"""The height of a line about further nodes."""
LINE_HEIGHT = 16
_CHARACTER = 7.6
"""The width of a wide letter of 13 pixels, so that no text is wider than its box."""
_SPACING = 18
_PORT = 15
"""The distance of lines that leave one box: their labels stand above them."""
_MAX_LINES = 5
_MAX_LABEL = 20
_UNDER = 12
"""How far lines begin under their box, whose sides may slant."""
_MAX_ENTITIES, _MAX_TOPICS, _MAX_STATEMENTS = 10, 4, 9
_SOURCE = "from"
_LABELS = {"fact_entity": "about", "decision_entity": "involves", "event_decision": "led to"}


@dataclass
class Box:
    """A node, or a relation between two entities."""

    type: str
    text: str
    lines: Sequence[str]
    x: float
    y: float
    width: float
    height: float
    is_guest: bool = False
    """It belongs to another community."""


@dataclass(frozen=True)
class Line:
    """An edge."""

    path: str
    label: str
    label_at: tuple[float, float]
    is_topic: bool
    has_arrow: bool = False


@dataclass
class CommunityPanel:
    """A community."""

    name: str
    height: float = 0.0
    boxes: list[Box] = field(default_factory=list[Box])
    lines: list[Line] = field(default_factory=list[Line])
    statements: int = 0
    """Facts, decisions and relations."""
    rest: int = 0
    """Nodes that are not drawn."""


@dataclass
class _Statement:
    """An item of the right column, and the entities and topics that it is linked to."""

    type: str
    text: str
    key: Key
    ends: list[tuple[Key, str]]
    """Entities, with the label of the edge to each."""
    topics: list[Key]


def make_community_panel(graph: Graph, name: str, home: Collection[Key]) -> CommunityPanel:
    """A community of these nodes, with the statements among them and the entities that these are
    about."""
    statements = [*_make_node_statements(graph, home), *_make_relation_statements(graph, home)]
    first_statements = statements[:_MAX_STATEMENTS]
    about = dict.fromkeys(end for statement in first_statements for end, _ in statement.ends)
    links = [edge for edge in graph.edges if edge.type == "entity_topic"]
    topics = _merge_by_frequency(
        (topic for statement in first_statements for topic in statement.topics if topic in home),
        (edge.end for edge in links if edge.start in home and edge.end in home),
    )[:_MAX_TOPICS]
    others = [key for key in graph.nodes if key in home and key[0] == "entity" and key not in about]
    entities = [*about, *others[: max(0, _MAX_ENTITIES - len(about))]]
    panel = CommunityPanel(name, statements=len(statements))
    visible_keys = {*topics, *entities, *(statement.key for statement in first_statements)}
    panel.rest = len([key for key in home if key in graph.nodes and key not in visible_keys])
    boxes = _place_boxes(graph, panel, home, topics, entities, first_statements)
    _connect_statements(panel, boxes, first_statements)
    _connect_topics(panel, boxes, links, first_statements)
    return panel


def _merge_by_frequency(first: Iterable[Key], then: Iterable[Key]) -> list[Key]:
    """Keys by how often they occur, those of `first` before the others."""
    counts: dict[Key, int] = {}
    for weight, keys in ((100, first), (1, then)):
        for key in keys:
            counts[key] = counts.get(key, 0) + weight
    return sorted(counts, key=lambda key: (-counts[key], key))


def _make_node_statements(graph: Graph, home: Collection[Key]) -> list[_Statement]:
    """The facts, decisions and events of a community."""
    statements: list[_Statement] = []
    for node in graph.nodes.values():
        if node.key in home and COLUMNS[node.type] == 2:
            pairs = [(edge.end, edge) for edge in graph.edges if edge.start == node.key]
            ends = [
                (end, _label(edge))
                for end, edge in pairs
                if end[0] == "entity" and end in graph.nodes
            ]
            topics = [end for end, _ in pairs if end[0] == "topic"]
            statements.append(_Statement(node.type, node.name, node.key, ends, topics))
    return statements


def _make_relation_statements(graph: Graph, home: Collection[Key]) -> list[_Statement]:
    """The relations of a community's entities, each where its first end is at home."""
    return [
        _Statement(
            "relation",
            edge.type + (f": {edge.label or edge.nuance}" if edge.label or edge.nuance else ""),
            ("relation", str(number)),
            [(edge.start, _SOURCE), (edge.end, "to")],
            [],
        )
        for number, edge in enumerate(graph.relations())
        if edge.start in home and {edge.start, edge.end} <= graph.nodes.keys()
    ]


def _label(edge: Edge) -> str:
    label = edge.label or _LABELS.get(edge.type, edge.type)
    return textwrap.shorten(label, _MAX_LABEL, placeholder="…")


def _place_boxes(
    graph: Graph,
    panel: CommunityPanel,
    home: Collection[Key],
    topics: Sequence[Key],
    entities: Sequence[Key],
    statements: Sequence[_Statement],
) -> dict[Key, Box]:
    """Boxes by their nodes: in each column one below the other, near the boxes that they are linked
    to."""
    boxes = {
        one.key: _make_box(one.type, one.text, ports=len(one.ends), is_guest=False)
        for one in statements
    }
    for key in (*entities, *topics):
        boxes[key] = _make_box(key[0], graph.nodes[key].name, ports=1, is_guest=key not in home)
    order = {one.key: number for number, one in enumerate(statements)}
    near: dict[Key, list[float]] = {}
    for one in statements:
        for end in (*(end for end, _ in one.ends), *one.topics):
            near.setdefault(end, []).append(order[one.key])
    last = float(len(statements))
    columns = [
        sorted(topics, key=lambda key: (fmean(near.get(key, [last])), key)),
        sorted(entities, key=lambda key: (fmean(near.get(key, [last])), key)),
        [one.key for one in statements],
    ]
    heights = [sum(boxes[key].height + _SPACING for key in column) for column in columns]
    inner = max(heights)
    for column, height in zip(columns, heights, strict=True):
        extra = (inner - height) / max(len(column), 1)
        y = _TOP + extra / 2
        for key in column:
            boxes[key].y = y
            y += boxes[key].height + _SPACING + extra
    panel.height = _TOP + inner - _SPACING + _BOTTOM + (_REST if panel.rest else 0)
    panel.boxes = [boxes[key] for column in columns for key in column]
    return boxes


def _make_box(node_type: str, text: str, *, ports: int, is_guest: bool) -> Box:
    column = COLUMNS[node_type]
    width = _WIDTHS[column]
    lines = textwrap.wrap(text, int((width - 24) / _CHARACTER))
    if len(lines) > _MAX_LINES:
        lines = [*lines[: _MAX_LINES - 1], lines[_MAX_LINES - 1][:-2] + " …"]
    height = max(len(lines) * LINE_HEIGHT + 12, ports * _PORT + 6)
    return Box(node_type, text, lines, _LEFTS[column], 0.0, width, height, is_guest)


def _connect_statements(
    panel: CommunityPanel, boxes: dict[Key, Box], statements: Sequence[_Statement]
) -> None:
    """Lines from statements to entities, each from a place of its own with its label above it."""
    for one in statements:
        box = boxes[one.key]
        ends = sorted(one.ends, key=lambda pair: boxes[pair[0]].y)
        for number, (end, label) in enumerate(ends):
            y = box.y + box.height / 2 + (number - (len(ends) - 1) / 2) * _PORT
            target = boxes[end]
            path = _curve(box.x + _UNDER, y, target.x + target.width, target.y + target.height / 2)
            at, is_source = (box.x - 5, round(y - 2, 1)), label == _SOURCE
            panel.lines.append(Line(path, label, at, is_topic=False, has_arrow=not is_source))


def _connect_topics(
    panel: CommunityPanel,
    boxes: dict[Key, Box],
    links: Iterable[Edge],
    statements: Sequence[_Statement],
) -> None:
    """Lines from topics to their entities, and between these to their statements."""
    for edge in links:
        if edge.start in boxes and edge.end in boxes:
            start, end = boxes[edge.end], boxes[edge.start]
            ends = (start.y + start.height / 2, end.y + end.height / 2)
            path = _curve(start.x + start.width, ends[0], end.x, ends[1])
            panel.lines.append(Line(path, "", (0, 0), is_topic=True))
    middle = sorted((box for box in boxes.values() if box.type == "entity"), key=lambda b: b.y)
    gaps = [box.y - _SPACING / 2 for box in middle] or [_TOP]
    gaps += [middle[-1].y + middle[-1].height + _SPACING / 2] if middle else []
    for one in statements:
        for topic in one.topics:
            if topic in boxes:
                start, end = boxes[topic], boxes[one.key]
                ends = (start.y + start.height / 2, end.y + end.height - 5)
                gap = min(gaps, key=lambda y, ends=ends: (abs(y - fmean(ends)), y))
                left_edge, right = _LEFTS[1], _LEFTS[1] + _WIDTHS[1]
                first = _curve(start.x + start.width, ends[0], left_edge, gap)
                then = _curve(right, gap, end.x + _UNDER, ends[1]).removeprefix("M")
                panel.lines.append(Line(f"{first}L{then}", "", (0, 0), is_topic=True))


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    middle, y, to_y = round((x + to_x) / 2, 1), round(y, 1), round(to_y, 1)
    return f"M{x} {y}C{middle} {y} {middle} {to_y} {to_x} {to_y}"
