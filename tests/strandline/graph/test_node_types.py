"""The table of node types and the models of their nodes say the same."""

import ast
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from strandline.graph.changes.schemas import NodePatch
from strandline.graph.nodes.node_types import NODE_TYPES, NodeType
from strandline.graph.nodes.schemas import FactIn, NodeIn, get_identifying_text
from tests.support import ScratchDatabase

PACKAGE = Path(__file__).parents[3] / "shared" / "strandline"


def list_models() -> dict[NodeType, type[BaseModel]]:
    """The models of nodes by their type."""
    models: tuple[type[BaseModel], ...] = get_args(get_args(NodeIn.__value__)[0])
    return {get_args(model.model_fields["type"].annotation)[0]: model for model in models}


def test_node_types_have_row_and_model() -> None:
    assert set(NODE_TYPES) == set(list_models()) == set(get_args(NodeType.__value__))
    assert len({spec.prefix for spec in NODE_TYPES.values()}) == len(NODE_TYPES)


def test_node_types_match_fields_of_models() -> None:
    base: Any = FactIn.__base__
    common = {*base.model_fields, "type", "invalidates", "reason"}
    for name, model in list_models().items():
        spec, fields = NODE_TYPES[name], model.model_fields
        own = set(fields) - common
        assert spec.fields | {spec.name_field} == own <= set(NodePatch.model_fields)
        defaults = {field: fields[field].default for field in own}
        assert spec.defaults == {n: v for n, v in defaults.items() if isinstance(v, str)}
        if spec.category_field:
            assert spec.category_field in spec.fields


def test_node_types_name_is_identifying_field() -> None:
    node = FactIn(type="fact", content="  The buoy is red. ")
    assert get_identifying_text(node) == "The buoy is red."
    assert node.format_as_sentence() == "The buoy is red."


def test_node_types_match_database(scratch_db: ScratchDatabase) -> None:
    ((check,),) = scratch_db.rows(
        "select pg_get_constraintdef(oid) from pg_constraint"
        " where conrelid = 'graph_nodes'::regclass and contype = 'c'"
        " and pg_get_constraintdef(oid) like %s",
        "%'fact'%",
    )
    assert {name for name in NODE_TYPES if f"'{name}'::text" in check} == set(NODE_TYPES)
    assert check.count("::text") == len(NODE_TYPES)


@pytest.mark.source
def test_node_types_are_listed_in_one_module() -> None:
    """Whatever else differs by type is a column of the table."""
    lists = {
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Dict | ast.Tuple | ast.List | ast.Set)
        for items in [node.keys if isinstance(node, ast.Dict) else node.elts]
        if {item.value for item in items if isinstance(item, ast.Constant)} >= set(NODE_TYPES)
    }
    assert lists == {"graph/nodes/node_types.py"}
