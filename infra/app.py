"""The CDK's entry: `make synth`, or `npx cdk deploy -c stage=<stage>`."""

import sys
from dataclasses import dataclass
from pathlib import Path

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from infra.load_settings import read
from infra.settings import Refused
from infra.stack import StrandlineStack
from layers import build
from strandline.deployment import Layer


@dataclass(frozen=True)
class Built:
    """What layers/build.py made."""

    handler: str = build.HANDLER
    certificates: str = build.CERTIFICATES

    def layer(self, name: Layer) -> Path:
        """A layer's directory."""
        return build.layer_dir("arm64", name)

    def function(self, name: str) -> Path:
        """A function's."""
        return build.function_dir(name)

    def unzipped(self, directory: Path) -> int:
        """As it was noted when it was built."""
        return build.size(directory).unzipped


def built() -> Built:
    """What lies there. Raises Refused where it is not of the code and the locks as they are now:
    `cdk deploy` alone builds nothing."""
    if old := build.stale("arm64"):
        names = ", ".join(path.name for path in old)
        raise Refused(f"build/ is not of this code ({names}): run make synth, which builds it")
    return Built()


def main() -> int:
    """Write the stack of the stage that the context names to cdk.out."""
    app = App()
    try:
        StrandlineStack(app, read(app.node.get_all_context()), built())
    except Refused as refused:
        sys.stderr.write(f"strandline: {refused}\n")
        return 2
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    app.synth()
    return 0


if __name__ == "__main__":
    sys.exit(main())
