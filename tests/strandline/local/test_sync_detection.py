"""A data directory that somebody else copies about is warned of, an ordinary one is not."""

from pathlib import Path

import pytest

from strandline.local.sync_detection import find_risks_to_database

NO_MOUNTS = Path("/no/such/file")


@pytest.mark.parametrize(
    ("folder", "client"),
    [
        ("Dropbox", "Dropbox"),
        ("Dropbox (Company)", "Dropbox"),
        ("OneDrive - Company", "OneDrive"),
        ("Google Drive", "Google Drive"),
        ("Library/CloudStorage/GoogleDrive-me@example.org", "Google Drive"),
        ("Library/Mobile Documents/com~apple~CloudDocs", "iCloud"),
        ("Nextcloud", "Nextcloud"),
    ],
)
def test_sync_detection_knows_dropbox_folder_by_name(
    tmp_path: Path, folder: str, client: str
) -> None:
    text = " ".join(find_risks_to_database(tmp_path / folder / "strandline", NO_MOUNTS))
    assert f"synchronised by {client}" in text
    assert "STRANDLINE_DATA_DIR" in text


@pytest.mark.parametrize(
    ("mark", "client"),
    [
        (".stfolder", "Syncthing"),
        (".dropbox.cache", "Dropbox"),
        (".sync_4f1d9e.db", "Nextcloud"),
        (".nextcloudsync.log", "Nextcloud"),
    ],
)
def test_sync_detection_knows_folder_by_marker(tmp_path: Path, mark: str, client: str) -> None:
    (tmp_path / mark).mkdir()
    inside = tmp_path / "deep" / "strandline"
    assert f"synchronised by {client}" in find_risks_to_database(inside, NO_MOUNTS)[0]
    inside.mkdir(parents=True)
    assert len(find_risks_to_database(inside, NO_MOUNTS)) == 1


def test_sync_detection_knows_network_mount(tmp_path: Path) -> None:
    share = tmp_path / "my share"
    mounts = tmp_path / "mounts"
    lines = [f"/dev/sda1 {tmp_path} ext4 rw 0 0", "/dev/root / ext4 rw 0 0"]
    for kind in ("nfs4", "cifs", "smb3", "fuse.sshfs"):
        mounted = [f"there:/x {str(share).replace(' ', '\\040')} {kind} rw 0 0", *lines]
        mounts.write_text("\n".join(mounted))
        (risk,) = find_risks_to_database(share / "strandline", mounts)
        assert f"network file system ({kind})" in risk
        assert find_risks_to_database(tmp_path / "strandline", mounts) == []


def test_sync_detection_passes_ordinary_folder(tmp_path: Path) -> None:
    assert find_risks_to_database(tmp_path / "my-dropbox-notes", NO_MOUNTS) == []
    assert find_risks_to_database(tmp_path / "data") == []
