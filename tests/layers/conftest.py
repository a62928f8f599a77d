"""What the tests of layers and function assets share: all of it, built."""

import pytest

from layers import build


@pytest.fixture(scope="session")
def built_layers() -> None:
    """Layers of both architectures and the assets; a second run finds them in build/."""
    build.build_functions()
    for arch in build.ARCHES:
        build.build(arch)
