"""A Region whose databases nobody here could believe is refused before anything is deployed."""

import functools
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import botocore
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from infra import assets
from infra.settings import SettingsError
from layers import build, certificates
from tests.infra.stacks import Template, properties, synthesize
from tests.tokens import ec_key

REGION = "il-central-1"


def regions() -> set[str]:
    """Every Region that RDS is in, of AWS's commercial partition, as botocore lists them."""
    file = Path(str(botocore.__file__)).parent / "data" / "endpoints.json"
    (aws,) = (p for p in json.loads(file.read_text())["partitions"] if p["partition"] == "aws")
    return set(aws["regions"]) & set(aws["services"]["rds"]["endpoints"])


def documented_names(repository: Path) -> set[str]:
    """The Regions of which the guide says that no root ships."""
    guide = " ".join((repository / "docs" / "deploy.md").read_text().split())
    (match,) = re.findall(r"no certificate authority ships for ([^.:]+)[.:]", guide)
    return set(re.findall(r"`([a-z0-9-]+)`", match))


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A file like AWS's, with a root of the Region that what ships lacks."""
    name = x509.Name.from_rfc4514_string(f"CN=Amazon RDS {REGION} Root CA RSA2048 G1,OU=Amazon RDS")
    key, now = ec_key("P-256"), datetime.now(UTC)
    result = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "global-bundle.pem"
    file.write_bytes(result.public_bytes(Encoding.PEM))
    return file


def test_ca_bundle_guide_names_regions_without_root(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("build_bundle", "list_regions"):  # the same for each of forty Regions
        monkeypatch.setattr(certificates, name, functools.cache(getattr(certificates, name)))
    root_regions = certificates.list_regions(certificates.build_bundle(repository))
    assert len(root_regions) >= 27
    missing = regions() - root_regions
    assert missing == documented_names(repository)
    assert REGION in missing
    for region in sorted(regions()):
        if region in missing:
            with pytest.raises(SettingsError, match=rf"for databases in {region}: .*-c ca_bundle="):
                assets.load_own_certificate_bundle(None, region)
        else:
            assert assets.load_own_certificate_bundle(None, region) is None
    assert assets.load_own_certificate_bundle(None, None) is None, (
        "a Region that nobody knows is not judged"
    )


def test_ca_bundle_replaces_database_roots(bundle: Path) -> None:
    choice = assets.load_own_certificate_bundle(str(bundle), REGION)
    assert choice is not None
    assert certificates.list_regions(choice) == {REGION}
    assert "Amazon Root CA 1" in [
        value
        for pem in re.findall(r"-----BEGIN[^-]+-----[^-]+-----END[^-]+-----", choice)
        for _, value in certificates.read_certificate(pem + "\n").subject
    ], "the roots of the proxy stay"
    with pytest.raises(SettingsError, match=f"{bundle} has no certificate authority .* eu-west-1"):
        assets.load_own_certificate_bundle(str(bundle), "eu-west-1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "ca_bundle: .*No such file"),
        ("nothing\n", "ca_bundle: .* has no certificate in PEM form"),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "ca_bundle: .* no certificate of an authority",
        ),
    ],
)
def test_ca_bundle_refuses_invalid_file(tmp_path: Path, text: str | None, words: str) -> None:
    file = tmp_path / "roots.pem"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingsError, match=words):
        assets.load_own_certificate_bundle(str(file), REGION)


def _nothing(arch: build.Arch) -> list[Path]:
    """All that is built for it is current."""
    del arch
    return []


def test_ca_bundle_is_found_in_layer(
    tmp_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "BUILD", tmp_path / "build")
    choice = assets.load_own_certificate_bundle(str(bundle), REGION)
    assert choice is not None
    directory = build.build_certificates(choice)
    inside = directory / Path(build.OWN_CERTIFICATES_PATH).relative_to("/opt")
    assert inside.read_text() == choice
    monkeypatch.setattr(build, "find_stale", _nothing)
    assert assets.load_built_assets(choice).certificates_layer == directory
    result: Template = synthesize("with_certificates")
    (layer,) = (n for n in properties(result, "Lambda::LayerVersion") if "Certificates" in n)
    for props in properties(result, "Lambda::Function").values():
        if "FunctionName" not in props:
            continue
        variables: dict[str, Any] = props["Environment"]["Variables"]
        is_told = f"sslrootcert={build.OWN_CERTIFICATES_PATH}" in json.dumps(variables)
        assert is_told is ({"Ref": layer} in props["Layers"]) is ("VpcConfig" in props)
