"""Prints the files of the client's distribution, which are written for Python 3.10."""

from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[1]


def client_files() -> list[Path]:
    """The modules of the wheel that the repository's root builds, in the source tree."""
    files = WheelBuilder(str(ROOT)).recurse_included_files()
    return sorted(Path(file.path) for file in files if file.path.endswith(".py"))


if __name__ == "__main__":
    for path in client_files():
        print(path.relative_to(ROOT))
