"""The picture of a graph: what it shows, and that all of it can be read."""

import itertools
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from strandline.local.graph_layout import PANEL_WIDTH, Box, CommunityPanel, make_community_panel
from strandline.local.graph_picture import draw_graph
from strandline.local.graph_reader import Edge, Graph
from tests.strandline.local.graph_samples import ALLERGY, BAD, key, make_graph, node, sample

SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: str, tag: str = "text") -> list[str]:
    root = ET.fromstring(picture)  # noqa: S314 -- our own
    return [element.text or "" for element in root.iter(f"{SVG}{tag}")]


def crowd(count: int) -> Graph:
    """One community of so many facts about so many entities, each with a long name."""
    facts = [node("fact", f"Fact {n} is told at great length. " * 4) for n in range(count)]
    entities = [node("entity", f"Extraordinarilylongentityname {n}") for n in range(count)]
    topic = node("topic", "A topic whose name goes on and on until it has to be cut somewhere" * 3)
    pairs = [(fact, entity) for fact in facts for entity in entities[:4]]
    edges = [Edge(one.key, other.key, "fact_entity", "", "") for one, other in pairs]
    edges += [Edge(one.key, topic.key, "entity_topic", "", "") for one in entities]
    edges += [Edge(one.key, topic.key, "fact_topic", "", "") for one in facts]
    nodes = [*facts, *entities, topic]
    return make_graph(nodes, edges, {"All": [one.key for one in nodes]})


def test_it_shows_what_is_stated_in_communities_with_a_legend() -> None:
    picture = draw_graph(sample(), "The graph of buoys & nuts")
    view = texts(picture)
    assert "The graph of buoys & nuts" in view
    assert "Nodes: 9. Edges: 11. Communities: 2." in view
    assert [text for text in view if text.startswith("Community")] == [
        "Community: Mara, nuts",
        "Community: Cod",
    ]
    assert "RELATES_TO: sister" in view
    assert {"about", "kept", "from", "to", "topic", "entity", "fact", "decision"} <= set(view)
    assert view.count("Mara") == 2, "at home in one community, a guest in the other"
    assert picture.count("stroke-dasharray") == 2, "the guest, and the legend's"
    assert f"fact: {ALLERGY}" in texts(picture, "title"), "the whole text"


def test_it_says_in_words_what_it_shows() -> None:
    picture = draw_graph(sample(), "Buoys")
    assert 'role="img" aria-labelledby="title desc"' in picture
    assert texts(picture, "title")[0] == "Buoys"
    (message,) = texts(picture, "desc")
    assert ALLERGY in message
    assert "Cod: Mara found Cod." in message


def test_what_people_said_is_text_and_nothing_else() -> None:
    picture = draw_graph(sample(), BAD)
    assert "<script" not in picture
    assert BAD in texts(picture)
    assert f"entity: {BAD}" in texts(picture, "title")


def test_the_same_graph_gives_the_same_bytes_in_whatever_order_it_is_read() -> None:
    graph = sample()
    other = replace(graph, edges=graph.edges[::-1])
    assert draw_graph(graph, "One") == draw_graph(graph, "One")
    assert draw_graph(replace(other, edges=sorted(other.edges)), "One") == draw_graph(
        replace(graph, edges=sorted(graph.edges)), "One"
    )


def overlaps(one: Box, other: Box) -> bool:
    return (
        one.x < other.x + other.width
        and other.x < one.x + one.width
        and one.y < other.y + other.height
        and other.y < one.y + one.height
    )


@pytest.mark.parametrize("count", [1, 5, 40])
def test_no_box_covers_another_and_every_text_fits_into_its_box(count: int) -> None:
    graph = crowd(count)
    panel = make_community_panel(graph, "All", set(graph.nodes))
    check_readable(panel)
    assert panel.statements == count
    assert panel.rest == (0 if count < 9 else 2 * count - 9 - 10)


def check_readable(panel: CommunityPanel) -> None:
    for one, other in itertools.combinations(panel.boxes, 2):
        assert not overlaps(one, other), (one, other)
    for box in panel.boxes:
        assert box.lines
        assert max(len(line) for line in box.lines) * 7.5 <= box.width - 20
        assert len(box.lines) * 16 <= box.height
        assert box.x >= 0
        assert box.x + box.width <= PANEL_WIDTH
        assert box.y + box.height <= panel.height
    places = [line.label_at for line in panel.lines if line.label]
    for one, other in itertools.combinations(places, 2):
        assert one[0] != other[0] or abs(one[1] - other[1]) >= 11, "labels stand apart"


def test_where_nothing_is_stated_the_communities_are_drawn() -> None:
    names = [f"Person {n}" for n in range(10)]
    nodes = [node("entity", name) for name in names]
    groups = {name: [key("entity", name)] for name in names}
    graph = make_graph(nodes, [], {**groups, "Gone": [key("entity", "Nobody")]})
    view = texts(draw_graph(graph, "People"))
    assert "Nodes: 10. Edges: 0. Communities: 11. Drawn: the 8 of which most is stated." in view
    assert [text for text in view if text.startswith("Person")] == names[:8]
    assert "Nodes: 0. Edges: 0. Communities: 0." in texts(
        draw_graph(make_graph([], [], {}), "Gone")
    )
