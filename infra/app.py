"""The CDK's entry: `make synth`, or `npx cdk deploy -c stage=<stage>`."""

import sys
from dataclasses import dataclass
from pathlib import Path

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from infra.load_settings import load_settings
from infra.settings import SettingsError
from infra.stack import StrandlineStack
from layers import build
from strandline.deployment import Layer


@dataclass(frozen=True)
class BuildAssets:
    """What layers/build.py built."""

    handler: str = build.HANDLER
    certificates: str = build.CERTIFICATES_PATH

    def layer(self, name: Layer) -> Path:
        """The directory of a layer."""
        return build.layer_directory("arm64", name)

    def function(self, name: str) -> Path:
        """The directory of a function's asset."""
        return build.function_directory(name)

    def unzipped_size(self, directory: Path) -> int:
        """Unzipped size in bytes, as recorded at build time."""
        return build.measure_size(directory).unzipped


def load_assets() -> BuildAssets:
    """The built assets. Raises SettingsError if they are older than the code or the locks, because
    `cdk deploy` alone builds nothing."""
    if stale := build.find_stale("arm64"):
        names = ", ".join(path.name for path in stale)
        raise SettingsError(
            f"build/ is not of this code ({names}): run make synth, which builds it"
        )
    return BuildAssets()


def main() -> int:
    """Write the stack of the stage that the context names to cdk.out."""
    app = App()
    try:
        StrandlineStack(app, load_settings(app.node.get_all_context()), load_assets())
    except SettingsError as error:
        sys.stderr.write(f"strandline: {error}\n")
        return 2
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    app.synth()
    return 0


if __name__ == "__main__":
    sys.exit(main())
