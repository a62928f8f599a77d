"""Build what a deployment ships: three layers and an asset for each function, without Docker.

    python layers/build.py [--arch arm64|x86_64] [names…]        (make layers: both)

`deps` is what requirements/runtime.lock names, `domain` the package strandline, `model` the
embedding model. arm64 is deployed; x86_64, from the same hashed locks, is what can be run where it
is built. The same inputs give the same bytes, and what is there already is not built again.
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from layers import certificates, contents, elf

type Arch = Literal["arm64", "x86_64"]
type Layer = Literal["deps", "domain", "model"]

ARCHES: tuple[Arch, ...] = get_args(Arch.__value__)
LAYERS: tuple[Layer, ...] = get_args(Layer.__value__)
ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
HANDLER = "handler.lambda_handler"
"""Of every function: its asset has handler.py at its root."""
CERTIFICATES_PATH = "/opt/python/strandline_certs/rds.pem"
"""Where a function finds the roots of RDS's certificates: for sslrootcert."""

_PLATFORMS: Mapping[Arch, str] = {
    "arm64": "aarch64-manylinux_2_28",
    "x86_64": "x86_64-manylinux_2_28",
}
_LOCKS: Mapping[Layer, str] = {"deps": "runtime.lock", "model": "model.lock"}


def layer_directory(arch: Arch, name: Layer) -> Path:
    """Where a built layer lies; Lambda lays its content out under /opt."""
    return BUILD / "layers" / arch / name


def function_directory(name: str) -> Path:
    """Where a function's asset lies, of any architecture; its content goes to /var/task."""
    return BUILD / "functions" / name


def list_functions() -> list[str]:
    """Every function: the folders in functions/."""
    return sorted(path.parent.name for path in ROOT.glob("functions/*/handler.py"))


class Size(NamedTuple):
    """Bytes of a built directory."""

    unzipped: int
    zipped: int


def measure_size(directory: Path) -> Size:
    """Of what was built. Lambda takes 250 MB of all layers and the asset, unzipped; its 50 MB
    zipped bind uploads that do not go by way of S3, as the CDK's do."""
    note = _manifest_path(directory)
    manifest = json.loads(note.read_text())
    if "size" not in manifest:
        manifest["size"] = _compute_size(directory)
        note.write_text(json.dumps(manifest))
    return Size(*manifest["size"])


def find_stale(arch: Arch) -> list[Path]:
    """What is not there, or was made of other inputs than there are now."""
    layers = {layer_directory(arch, name): [arch, *_inputs(name)] for name in LAYERS}
    assets = {function_directory(name): [_handler(name)] for name in list_functions()}
    return [
        path
        for path, inputs in (layers | assets).items()
        if not _is_current(path, _hash_inputs(inputs))
    ]


def build(arch: Arch, names: Sequence[Layer] = LAYERS) -> None:
    """Build these layers of one architecture, as far as their inputs have changed."""
    makers: dict[Layer, Callable[[Path], None]] = {
        "deps": lambda into: _make_deps(arch, into),
        "domain": _make_domain,
        "model": lambda into: _install(arch, "model", into),
    }
    for name in names:
        _build_if_changed(layer_directory(arch, name), [arch, *_inputs(name)], makers[name])


def build_functions() -> None:
    """Build the asset of every function, as far as its handler has changed."""
    for name in list_functions():
        source = _handler(name)

        def copy(into: Path, source: Path = source) -> None:
            shutil.copyfile(source, into / source.name)
            _compile(into, "/var/task")

        _build_if_changed(function_directory(name), [source], copy)


def _handler(name: str) -> Path:
    return ROOT / "functions" / name / "handler.py"


# What a layer is made of --------------------------------------------------------------------------


def _inputs(name: Layer) -> list[Path]:
    if name == "domain":
        return sorted(p for p in _package_files() if p.is_file())
    locks = [ROOT / "requirements" / lock for lock in _LOCKS.values()]
    return locks if name == "model" else [*locks, *certificates.source_files(ROOT)]


def _package_files() -> Iterable[Path]:
    """The package strandline but for what serves one machine alone."""
    package = ROOT / "shared" / "strandline"
    for path in package.rglob("*"):
        within = path.relative_to(package).parts
        if within[0] != "local" and "__pycache__" not in within:
            yield path


def _make_deps(arch: Arch, into: Path) -> None:
    _install(arch, "deps", into)
    bundle = into / Path(CERTIFICATES_PATH).relative_to("/opt")
    bundle.parent.mkdir()
    bundle.write_text(certificates.build_bundle(ROOT), "utf-8")


def _make_domain(into: Path) -> None:
    shared = ROOT / "shared"
    for path in _inputs("domain"):
        target = into / "python" / path.relative_to(shared)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    _compile(into, "/opt")


def _install(arch: Arch, name: Layer, into: Path) -> None:
    """What the layer's lock names, as that platform's wheels have it, less what does not run."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.write("\n".join(_select_packages(name).values()))
        requirements.flush()
        target_options = (
            f"--python-platform {_PLATFORMS[arch]} --python-version 3.13 --link-mode copy"
        )
        strict = "--only-binary :all: --require-hashes --no-deps"
        command = f"pip install --quiet {target_options} {strict}".split()
        uv = [sys.executable, "-m", "uv", *command]  # the development lock brings it
        subprocess.run([*uv, "--target", into / "python", "-r", requirements.name], check=True)
    contents.prune(into / "python")
    contents.check_licences(into / "python")
    contents.add_licences(into / "python", ROOT / "LICENSE")
    elf.check(into, arch)
    _compile(into, "/opt")


def _select_packages(name: Layer) -> dict[str, str]:
    """The packages that go into a layer: of the model's lock what the other layer has not."""
    packages = _read_lock(_LOCKS[name])
    others = {} if name == "deps" else _read_lock(_LOCKS["deps"])
    return {
        n: text for n, text in packages.items() if n not in {*others, *contents.EXCLUDED_PACKAGES}
    }


def _read_lock(lock: str) -> dict[str, str]:
    """A lock's packages by name, each with its hashes."""
    text = (ROOT / "requirements" / lock).read_text()
    entries = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE | re.IGNORECASE)
    return {entry.partition("==")[0]: entry for entry in entries if "==" in entry}


def _compile(directory: Path, install_path: str) -> None:
    """Bytecode beside every module, valid whatever the file's time: Lambda's disk is read-only, so
    what is not compiled here is compiled at every cold start. In a process of its own, without
    chance: the order of sets and what else is interned there show in bytecode."""
    compiler = [sys.executable, "-S", "-m", "compileall", "-q", "--invalidation-mode"]
    options = ["unchecked-hash", "-s", directory, "-p", install_path, directory]
    subprocess.run([*compiler, *options], env={"PYTHONHASHSEED": "0"}, check=True)


# What is there already ----------------------------------------------------------------------------


def _build_if_changed(
    directory: Path, inputs: Sequence[Path | str], make: Callable[[Path], None]
) -> None:
    """Have `directory` as `make` makes it of these inputs, and note of what and how large."""
    key = _hash_inputs(inputs)
    with _build_lock():
        if _is_current(directory, key):
            return
        staging = directory.with_name(f".{directory.name}")
        for old in (staging, directory):
            shutil.rmtree(old, ignore_errors=True)
        staging.mkdir(parents=True)
        make(staging)
        staging.rename(directory)
        _manifest_path(directory).write_text(json.dumps({"key": key}))


def _is_current(directory: Path, key: str) -> bool:
    """Whether it is there, made of the inputs that this is the key of."""
    note = _manifest_path(directory)
    return directory.exists() and note.exists() and json.loads(note.read_text())["key"] == key


def _hash_inputs(inputs: Sequence[Path | str]) -> str:
    """A hash of the inputs, of this program and of the bytecode's version."""
    programs = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.sha256(py_compile.__name__.encode() + bytes(sys.version_info[:2]))
    for item in (*programs, *inputs):
        name, data = (
            (item, b"")
            if isinstance(item, str)
            else (str(item.relative_to(ROOT)), item.read_bytes())
        )
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def _manifest_path(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.json")


def _compute_size(directory: Path) -> Size:
    files = [path for path in directory.rglob("*") if path.is_file()]
    with tempfile.TemporaryFile() as scrap:
        with zipfile.ZipFile(scrap, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in files:
                archive.write(file, file.relative_to(directory))
        return Size(sum(file.stat().st_size for file in files), scrap.tell())


@contextlib.contextmanager
def _build_lock() -> Generator[None]:
    """One builder at a time: tests and synth may ask for the same layer."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / ".layers.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Build what is asked for, by default everything for both architectures, and say how large."""
    parser = argparse.ArgumentParser(description="Build the layers and function assets.")
    parser.add_argument("--arch", choices=ARCHES, help="by default both")
    parser.add_argument("names", nargs="*", metavar="layer", help=f"by default {', '.join(LAYERS)}")
    args = parser.parse_args()
    if unknown := set(args.names) - set(LAYERS):
        parser.error(f"no layer {', '.join(sorted(unknown))}: there are {', '.join(LAYERS)}")
    build_functions()
    for arch in [args.arch] if args.arch else ARCHES:
        build(arch, args.names or LAYERS)
        for name in args.names or LAYERS:
            unzipped, zipped = measure_size(layer_directory(arch, name))
            line = f"layers: {arch} {name}: {unzipped / 1e6:.1f} MB, zipped {zipped / 1e6:.1f} MB\n"
            sys.stdout.write(line)


if __name__ == "__main__":
    main()
