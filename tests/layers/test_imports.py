"""What a cold start does not import: each of these costs more than the request that it delays.

`test_runtime.py` looks at every function, whose process it starts anyway."""

import importlib.util

import pytest

from tests.lambda_runtime import LambdaFunction
from tests.layers.function_imports import (
    ENVIRONMENT,
    IMPORT_TIME,
    MODEL,
    UNWANTED,
    wait_for_imports,
)

pytestmark = pytest.mark.usefixtures("built_layers")

WIRE = {"pydantic.json_schema", "strandline.apidocs.openapi"}
"""The API's document, with the first who asks for it."""


def test_layer_imports_unwanted_modules_exist() -> None:
    """A module that was renamed would never be imported, and prove nothing."""
    names = {name for unwanted in UNWANTED.values() for name in unwanted}
    missing = [name for name in sorted(names) if importlib.util.find_spec(name) is None]
    assert missing == []


def test_layer_imports_test_detects_extra_import() -> None:
    """Planted: the worker has the model, which nobody may have who does not embed."""
    with LambdaFunction("worker", ENVIRONMENT, flags=IMPORT_TIME) as function:
        assert wait_for_imports(function) & UNWANTED["archiver"] == MODEL
