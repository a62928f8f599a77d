"""The layers that are deployed run: under qemu-user, in a root without /sys, as Lambda has none.
`make prove` needs the Debian packages qemu-user-static and mmdebstrap for it, and says so."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from layers import build
from strandline.embeddings.local import LocalEmbedder
from strandline.function_specs import FUNCTIONS
from tests.layers.function_imports import ENVIRONMENT

pytestmark = [pytest.mark.usefixtures("built_layers"), pytest.mark.proof]
ROOT = build.BUILD / "arm64"
TEXTS = ["The buoy goes out on Friday.", "Die Boje geht am Freitag hinaus.", "x" * 2000]


@pytest.fixture(scope="module")
def probe_report(built_layers: None) -> dict[str, Any]:
    """What the probe says, inside of the root with the built layers."""
    del built_layers
    script = build.ROOT / "layers" / "arm64_root.sh"
    subprocess.run(["/bin/sh", script, ROOT], check=True)  # says what is missing here
    for name in ("opt/python", "var/task"):
        shutil.rmtree(ROOT / name, ignore_errors=True)
    for layer in build.LAYERS:
        source = build.layer_directory("arm64", layer) / "python"
        shutil.copytree(source, ROOT / "opt" / "python", dirs_exist_ok=True)
    for fn in FUNCTIONS:
        shutil.copytree(build.function_directory(fn.name), ROOT / "var" / "task" / fn.name)
    shutil.copy(Path(__file__).with_name("arm64_probe.py"), ROOT / "probe.py")
    enter = ["chroot", ROOT] if os.geteuid() == 0 else ["unshare", "-r", "-R", ROOT]
    query = {
        "functions": [fn.name for fn in FUNCTIONS],
        "certificates": build.CERTIFICATES_PATH,
        "texts": TEXTS,
    }
    keys = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret"}
    keys["AWS_DEFAULT_REGION"] = ENVIRONMENT["AWS_REGION"]  # Lambda sets both
    # As Lambda's first arm64 processor, Graviton2. By default qemu emulates all that it can, and
    # numpy's matrices then take SME, which no Graviton has: what they compute there is wrong.
    processor = {"QEMU_CPU": "neoverse-n1"}
    process = subprocess.run(
        [*enter, "/qemu", "/usr/bin/python3.13", "/probe.py"],
        input=json.dumps(query),
        env=ENVIRONMENT | keys | processor | {"HOME": "/", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return json.loads(process.stdout)


def test_arm64_handlers_import_and_make_clients(probe_report: dict[str, Any]) -> None:
    assert (probe_report["machine"], probe_report["sys"]) == ("aarch64", False)
    assert probe_report["imported"] == [fn.name for fn in FUNCTIONS]
    assert probe_report["authorities"] > 50
    assert probe_report["libpq"] >= 180_000
    assert probe_report["clients"] == ["s3", "sqs", "bedrock-runtime", "stepfunctions", "scheduler"]


def test_arm64_models_embed_as_on_this_machine(probe_report: dict[str, Any]) -> None:
    """Both that ship."""
    embedder = LocalEmbedder()
    assert probe_report["space"] == embedder.space
    here = embedder.embed(TEXTS, timeout=60.0)
    assert len(probe_report["vectors"]) == len(TEXTS)
    for there, vector in zip(probe_report["vectors"], here, strict=True):
        assert max(abs(a - b) for a, b in zip(there, vector, strict=True)) < 1e-5
