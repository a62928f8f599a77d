"""A picture of a knowledge graph as SVG: its communities as panels, in each of them topics,
entities and the statements about them, in columns.

The same graph gives the same bytes. Texts are wrapped into boxes whose sizes follow from them, so
that none covers another; lines run behind the boxes.
"""

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple

from strandline.local.graph_layout import (
    LINE_HEIGHT,
    PADDING,
    PANEL_WIDTH,
    Box,
    CommunityPanel,
    Line,
    make_community_panel,
)
from strandline.local.graph_reader import Graph

_WIDTH = PANEL_WIDTH + 2 * PADDING
_HEAD = 132
_GAP = 18
_MAX_PANELS = 8
_TITLE_CHARACTERS = 110


class _Style(NamedTuple):
    """How a type of node is drawn."""

    label: str
    fill: str
    stroke: str


_STYLES: Mapping[str, _Style] = {
    "topic": _Style("topic", "#ede9fe", "#6d28d9"),
    "entity": _Style("entity", "#dbeafe", "#1d4ed8"),
    "fact": _Style("fact", "#dcfce7", "#15803d"),
    "decision": _Style("decision", "#ffedd5", "#c2410c"),
    "event": _Style("event", "#fef9c3", "#a16207"),
    "relation": _Style("relation between two entities", "#ffffff", "#475569"),
}
_LINES = {"topic": "#a78bfa", "about": "#64748b"}


@dataclass
class _Drawing:
    """Panels below each other."""

    parts: list[str] = field(default_factory=list[str])
    bottom: float = _HEAD


def draw_graph(graph: Graph, title: str) -> str:
    """The picture: the communities with the most statements, and these statements."""
    panels = _choose_community_panels(graph)
    drawing = _Drawing()
    for panel in panels:
        drawing.parts += _draw_panel(panel, drawing.bottom)
        drawing.bottom += panel.height + _GAP
    subtitle = (
        f"Nodes: {len(graph.nodes)}. Edges: {len(graph.edges)}. "
        f"Communities: {len(graph.communities)}."
    )
    if len(panels) < len(graph.communities):
        subtitle += f" Drawn: the {len(panels)} of which most is stated."
    height = round(drawing.bottom)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        'aria-labelledby="title desc" font-family="Helvetica, Arial, sans-serif" font-size="13" '
        'fill="#111827">',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="desc">{escape(_describe(subtitle, panels))}</desc>',
        _MARKERS,
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        _text(PADDING, 30, title, 'font-size="18" font-weight="bold"'),
        _text(PADDING, 52, subtitle, 'fill="#374151"'),
        *_draw_legend(),
        *drawing.parts,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


_MARKERS = (
    '<defs><marker id="to" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
    f'orient="auto"><path d="M0 0L8 4L0 8Z" fill="{_LINES["about"]}"/></marker></defs>'
)


def _choose_community_panels(graph: Graph) -> list[CommunityPanel]:
    """The communities with the most statements; of equals, the larger first."""
    home: dict[tuple[str, str], int] = {}
    for number, community in enumerate(graph.communities):
        for key in community.nodes:
            home.setdefault(key, number)
    panels = [
        make_community_panel(
            graph, community.name, {key for key, at in home.items() if at == number}
        )
        for number, community in enumerate(graph.communities)
    ]
    non_empty = [panel for panel in panels if panel.boxes]
    return sorted(non_empty, key=lambda panel: -panel.statements)[:_MAX_PANELS]


def _describe(subtitle: str, panels: Iterable[CommunityPanel]) -> str:
    """The picture in words."""
    sentences = (
        f"{panel.name}: "
        + "; ".join(box.text for box in panel.boxes if box.type in _STATEMENT_TYPES)
        for panel in panels
        if panel.statements
    )
    return " ".join([subtitle, *(f"{sentence}." for sentence in sentences)])


_STATEMENT_TYPES = ("fact", "decision", "relation")


def _draw_panel(panel: CommunityPanel, top: float) -> Iterator[str]:
    name = textwrap.shorten(panel.name, _TITLE_CHARACTERS, placeholder=" …")
    yield f'<g transform="translate({PADDING} {round(top)})">'
    yield (
        f'<rect width="{PANEL_WIDTH}" height="{round(panel.height)}" rx="14" fill="#f8fafc" '
        'stroke="#94a3b8"/>'
    )
    yield _text(PADDING, 24, f"Community: {name}", 'font-weight="bold" fill="#334155"')
    for line in panel.lines:
        yield _draw_line(line)
    for box in panel.boxes:
        yield from _draw_box(box)
    for line in panel.lines:
        if line.label:
            yield _text(*line.label_at, line.label, _LABEL)
    if panel.rest:
        more = f"and {panel.rest} more of its nodes"
        yield _text(PADDING, round(panel.height) - 12, more, 'fill="#475569" font-size="12"')
    yield "</g>"


_LABEL = (
    'font-size="11" fill="#334155" text-anchor="end" paint-order="stroke" stroke="#f8fafc" '
    'stroke-width="4"'
)


def _draw_line(line: Line) -> str:
    colour = _LINES["topic" if line.is_topic else "about"]
    marker = ' marker-end="url(#to)"' if line.has_arrow else ""
    return f'<path d="{line.path}" fill="none" stroke="{colour}"{marker}/>'


def _draw_box(box: Box) -> Iterator[str]:
    style = _STYLES[box.type]
    dash = ' stroke-dasharray="5 3"' if box.is_guest else ""
    middle = box.x + box.width / 2
    first = box.y + box.height / 2 - (len(box.lines) - 1) * LINE_HEIGHT / 2 + 4.5
    yield f"<g><title>{escape(f'{box.type}: {box.text}')}</title>"
    yield f'<path d="{_outline(box)}" fill="{style.fill}" stroke="{style.stroke}"{dash}/>'
    for number, text in enumerate(box.lines):
        y = round(first + number * LINE_HEIGHT, 1)
        yield _text(round(middle, 1), y, text, 'text-anchor="middle"')
    yield "</g>"


def _outline(box: Box) -> str:
    """The shape of a node's type: a tag for topics, round ends for entities, a hexagon for
    decisions, a rectangle for the others."""
    left_edge, top, width, height = (
        round(side, 1) for side in (box.x, box.y, box.width, box.height)
    )
    right, bottom, middle = left_edge + width, top + height, top + height / 2
    if box.type == "topic":
        return f"M{left_edge} {top}H{right - 12}L{right} {top + 12}V{bottom}H{left_edge}Z"
    if box.type == "decision":
        return (
            f"M{left_edge} {middle}L{left_edge + 12} {top}H{right - 12}L{right} {middle}"
            f"L{right - 12} {bottom}H{left_edge + 12}Z"
        )
    radius = {"entity": min(height / 2, 16), "relation": 8}.get(box.type, 1)
    return (
        f"M{left_edge + radius} {top}H{right - radius}a{radius} {radius} 0 0 1 {radius} {radius}"
        f"V{bottom - radius}a{radius} {radius} 0 0 1 -{radius} {radius}"
        f"H{left_edge + radius}a{radius} {radius} 0 0 1 -{radius} -{radius}"
        f"V{top + radius}a{radius} {radius} 0 0 1 {radius} -{radius}Z"
    )


def _draw_legend() -> Iterator[str]:
    """The shapes and lines, in two rows."""
    x = float(PADDING)
    for node_type, style in _STYLES.items():
        if node_type == "event":
            continue
        yield from _draw_box(Box(node_type, "", [], x, 68, 30, 18))
        yield _text(x + 38, 82, style.label, "")
        x += 62 + 7 * len(style.label)
    yield f'<path d="M{PADDING} 107h30" stroke="{_LINES["topic"]}"/>'
    yield _text(PADDING + 38, 111, "belongs to the topic", "")
    start = PADDING + 200
    yield (
        f'<path d="M{start} 107h30" stroke="{_LINES["about"]}" marker-end="url(#to)"/>'
        f"{_text(start + 38, 111, 'as its label says', '')}"
    )
    yield from _draw_box(Box("entity", "", [], start + 180, 98, 30, 18, is_guest=True))
    yield _text(start + 218, 111, "most of its edges are in another community", "")


def _text(x: float, y: float, text: str, attributes: str) -> str:
    return f'<text x="{x}" y="{y}" {attributes}>{escape(text)}</text>'
