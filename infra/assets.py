"""What the stack deploys: the built directories, and the databases' certificate authorities."""

from dataclasses import dataclass
from pathlib import Path

from infra.settings import SettingsError
from layers import build, certificates
from strandline.function_specs import Layer


@dataclass(frozen=True)
class BuiltAssets:
    """What layers/build.py built."""

    handler: str = build.HANDLER
    certificates: str = build.CERTIFICATES_PATH
    certificates_layer: Path | None = None

    def layer_directory(self, name: Layer) -> Path:
        """The directory of a layer."""
        return build.layer_directory("arm64", name)

    def function_directory(self, name: str) -> Path:
        """The directory of a function's asset."""
        return build.function_directory(name)

    def unzipped_size(self, directory: Path) -> int:
        """Unzipped size in bytes, as recorded at build time."""
        return build.measure_size(directory).unzipped


def load_built_assets(bundle: str | None = None) -> BuiltAssets:
    """The built assets, with this bundle of certificate authorities instead of the shipped one.
    Raises SettingsError if they are older than the code or the locks, because `cdk deploy` alone
    builds nothing."""
    if stale := build.find_stale("arm64"):
        names = ", ".join(path.name for path in stale)
        raise SettingsError(f"build/ is out of date ({names}): run make synth, which builds it")
    if bundle is None:
        return BuiltAssets()
    return BuiltAssets(
        certificates=build.OWN_CERTIFICATES_PATH,
        certificates_layer=build.build_certificates(bundle),
    )


def load_own_certificate_bundle(ca_bundle: str | None, region: str | None) -> str | None:
    """The certificate authorities that replace the shipped ones; None: the shipped ones. Raises
    SettingsError if they cannot be read, or have no root for the Region, if that is known: no
    function could connect to the database, and the first deployment would fail after half an
    hour."""
    if ca_bundle is None:
        replacement, bundle = None, certificates.build_bundle(build.ROOT)
    else:
        try:
            text = (build.ROOT / ca_bundle).read_text("ascii")
            replacement = bundle = certificates.replace_databases(build.ROOT, text)
        except (OSError, ValueError) as error:
            raise SettingsError(
                f"The stack cannot be made. ca_bundle: {ca_bundle} {error}."
            ) from None
    if region is not None and region not in certificates.list_regions(bundle):
        raise SettingsError(
            f"The stack cannot be made. {ca_bundle or 'What ships'} has no certificate authority "
            f"for databases in {region}: fetch AWS's global-bundle.pem (docs/deploy.md, Before the "
            "first deployment) and name it with -c ca_bundle=<file>."
        )
    return replacement
