"""The functions' handlers and the state machine's definition: in the repository they stand beside
the package, in an installed wheel within it."""

import importlib
from pathlib import Path
from types import ModuleType

_REPOSITORY = Path(__file__).parents[3]
_BUNDLE = Path(__file__).parent / "bundle"
"""Where the wheel has them: pyproject.toml, `force-include`."""


def find_state_machine_definition() -> Path:
    """The file of the state machine's definition."""
    beside = _REPOSITORY / "infra" / "job.asl.json"
    return beside if beside.exists() else _BUNDLE / "job.asl.json"


def import_handler_module(name: str) -> ModuleType:
    """The module of a function's handler."""
    is_repository = (_REPOSITORY / "functions" / name / "handler.py").exists()
    prefix = "" if is_repository else "strandline.local.bundle."
    return importlib.import_module(f"{prefix}functions.{name}.handler")
