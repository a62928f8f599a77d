"""Functions as they were before, for proofs that compare the present ones with them."""

import re
from pathlib import Path

_TEXT = Path(__file__).with_suffix(".sql")


def read_former(name: str) -> str:
    """What follows `create function` in its definition."""
    (definition,) = re.findall(
        rf"^create function ({name}\(.*?\n(?:end )?\$\$;)\n", _TEXT.read_text(), re.M | re.S
    )
    return definition
