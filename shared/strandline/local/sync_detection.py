"""Detects data directories that a sync client copies, or that are on a network file system."""

from collections.abc import Iterator
from pathlib import Path

# How such folders' names begin ("OneDrive - Company"), in lower case, and the product.
_FOLDER_PREFIXES = (
    ("dropbox", "Dropbox"),
    ("onedrive", "OneDrive"),
    ("google drive", "Google Drive"),
    ("googledrive", "Google Drive"),
    ("icloud drive", "iCloud"),
    ("mobile documents", "iCloud"),
    ("nextcloud", "Nextcloud"),
    ("cloudstorage", "a cloud's client"),  # macOS: ~/Library/CloudStorage/<provider>
)
# Files that sync clients leave at the top of a folder, whatever its name.
_MARKER_FILES = (
    (".stfolder", "Syncthing"),
    (".dropbox.cache", "Dropbox"),
    (".nextcloudsync.log", "Nextcloud"),
    (".sync_*.db", "Nextcloud"),
)
_NETWORK = ("nfs", "cifs", "smb", "afp", "ceph", "davfs", "fuse.sshfs", "fuse.rclone", "fuse.davfs")
_MOUNTS = Path("/proc/self/mounts")


def find_risks_to_database(directory: Path, mounts: Path = _MOUNTS) -> list[str]:
    """The risks to a live database in `directory`, each with what to do; empty if none is known.
    `mounts` has the form of /proc/mounts; where it does not exist (macOS) network file systems are
    not detected."""
    directory = directory.expanduser().resolve()
    way_out = "Stop it, move the directory elsewhere, and name that in STRANDLINE_DATA_DIR."
    risks = [
        f"{directory} is synchronised by {client}, which damages a live database. {way_out}"
        for client in sorted(set(_find_sync_clients(directory)))
    ]
    if (kind := _find_filesystem_type(directory, mounts)).startswith(_NETWORK):
        risks.append(
            f"{directory} is on a network file system ({kind}), where a database loses its locks "
            f"or its writes. {way_out}"
        )
    return risks


def _find_sync_clients(directory: Path) -> Iterator[str]:
    for part in directory.parts:
        yield from (client for name, client in _FOLDER_PREFIXES if part.casefold().startswith(name))
    for folder in (directory, *directory.parents):
        yield from (
            client
            for marker, client in _MARKER_FILES
            if next(folder.glob(marker), None) is not None
        )


def _find_filesystem_type(directory: Path, mounts: Path) -> str:
    """The type of the nearest mount above; of two on one mount point the later counts."""
    if not mounts.exists():
        return ""
    nearest, kind = -1, ""
    for line in mounts.read_text().splitlines():
        mount_point, filesystem_type = line.split()[1:3]
        mount_path = Path(mount_point.replace("\\040", " "))
        if directory.is_relative_to(mount_path) and len(mount_path.parts) >= nearest:
            nearest, kind = len(mount_path.parts), filesystem_type
    return kind
