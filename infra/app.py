"""The CDK's entry: `make synth`, or `npx cdk deploy -c stage=<stage>`."""

import os
import sys

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from infra.assets import load_built_assets, load_own_certificate_bundle
from infra.load_settings import load_stage_settings
from infra.settings import SettingsError
from infra.stack import StrandlineStack
from infra.validation import find_warning


def main() -> int:
    """Write the stack of the stage that the context names to cdk.out."""
    app = App()
    try:
        settings = load_stage_settings(app.node.get_all_context())
        # The CDK's command line sets the variable, from the profile or AWS_REGION.
        bundle = load_own_certificate_bundle(
            settings.ca_bundle, os.environ.get("CDK_DEFAULT_REGION")
        )
        StrandlineStack(app, settings, load_built_assets(bundle))
    except SettingsError as error:
        sys.stderr.write(f"strandline: {error}\n")
        return 2
    if warning := find_warning(settings):
        sys.stderr.write(f"strandline: {settings.stack_name}: {warning}.\n")
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    app.synth()
    return 0


if __name__ == "__main__":
    sys.exit(main())
