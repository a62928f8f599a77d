"""What the CDK knows when it reads the settings."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def context(**options: object) -> Mapping[str, Any]:
    """What the CDK knows: cdk.json's context, the command line's, and its own."""
    own = {"aws:cdk:enable-path-metadata": True, "acknowledged-issue-numbers": [34892]}
    return {**json.loads((ROOT / "cdk.json").read_text())["context"], **own, **options}
