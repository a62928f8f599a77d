"""moto's interpreter of state machines, imported without the services that none of them calls."""

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

_BATCH = "moto.batch"
"""The interpreter reads one enumeration of this package, and the package imports all of EC2: 0.7 s
of each start."""


def _import_without_batch() -> Any:
    """Import them while a stand-in takes the place of moto's Batch."""
    spec = importlib.util.find_spec(_BATCH)
    if spec is None or _BATCH in sys.modules:
        return _import_parser_backends()
    stand_in = ModuleType(_BATCH)
    stand_in.__path__ = spec.submodule_search_locations or []
    sys.modules[_BATCH] = stand_in
    try:
        return _import_parser_backends()
    finally:
        del sys.modules[_BATCH]


def _import_parser_backends() -> Any:
    models = importlib.import_module("moto.stepfunctions.parser.models")
    return models.stepfunctions_parser_backends


STATE_MACHINES: Any = _import_without_batch()
"""moto's own state machines, by account and Region."""
RUN_THREADS: list[Any] = importlib.import_module("moto.stepfunctions.parser.utils").TMP_THREADS
"""The threads of runs. moto adds each and never reads them, so they would keep what a run held."""
