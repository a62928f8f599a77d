"""Memory files whose statements were erased: their keys stay used, and nothing is stated under them
any more."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from strandline import Strandline
from strandline.adapters.memory_file_texts import MemoryCommandError
from strandline.adapters.memory_files import MemoryFiles
from tests.strandline.adapters.conftest import Service, Users, act_before_request

NOTES, OTHER_NOTES = "/memories/notes.md", "/memories/b.md"
CREATE = {"command": "create", "path": NOTES, "file_text": "one"}
EDIT = {"command": "str_replace", "path": NOTES, "old_str": "one", "new_str": "two"}
DELETE = {"command": "delete", "path": NOTES}
RENAME = {"command": "rename", "old_path": NOTES, "new_path": OTHER_NOTES}


@pytest.fixture
def files(client: Strandline, users: Users) -> MemoryFiles:
    return MemoryFiles(user=users.alice, agent="helper", client=client)


@pytest.fixture
def other(service: Service, users: Users) -> Iterator[MemoryFiles]:
    """Another program with the same memory, which may not erase."""
    with Strandline(service.url, service.key) as client:
        yield MemoryFiles(user=users.alice, agent="helper", client=client)


def view(files: MemoryFiles, path: str) -> str:
    return files.execute({"command": "view", "path": path})


def leave_moved(files: MemoryFiles, other: MemoryFiles) -> None:
    del other
    files.execute(CREATE)
    files.execute(RENAME)


def leave_tombstone(files: MemoryFiles, other: MemoryFiles) -> None:
    del files
    other.execute(CREATE)
    other.execute(DELETE)


@pytest.mark.parametrize("leave", [leave_moved, leave_tombstone])
def test_memory_files_create_again_what_was_deleted(
    files: MemoryFiles, other: MemoryFiles, leave: Callable[[MemoryFiles, MemoryFiles], None]
) -> None:
    """On top of what stays stated of the path."""
    leave(files, other)
    for _ in range(2):
        files.execute(CREATE)
        files.execute(DELETE)
    files.execute(CREATE)
    assert view(files, NOTES).endswith("\tone")


@pytest.mark.parametrize("command", [EDIT, {**EDIT, "new_str": "three"}, DELETE, RENAME])
def test_memory_files_change_whose_newest_text_was_erased(
    files: MemoryFiles, client: Strandline, users: Users, command: dict[str, Any]
) -> None:
    """By other means than a command: the text before it is the present one again."""
    files.execute(CREATE)
    files.execute({**EDIT, "new_str": "secret"})
    events = client.get_all(user=users.alice, agent="helper")
    secret = next(event for event in events if '"secret"' in str(event.content))
    client.erase(event_ids=[secret.event_id])
    assert view(files, NOTES).endswith("\tone")
    files.execute(command)
    if command["command"] == "str_replace":
        assert view(files, NOTES).endswith(f"\t{command['new_str']}")
    else:
        assert NOTES not in view(files, "/memories")


def test_memory_files_rename_over_no_new_file(
    files: MemoryFiles, other: MemoryFiles, client: Strandline
) -> None:
    """Another program makes a file there just before the first one is copied."""
    files.execute(CREATE)
    create = {**CREATE, "path": OTHER_NOTES, "file_text": "theirs"}
    act_before_request(client, "POST", "b.md", lambda: other.execute(create))
    with pytest.raises(MemoryCommandError, match="already exists"):
        files.execute(RENAME)
    assert view(files, OTHER_NOTES).endswith("\ttheirs")
    assert view(files, NOTES).endswith("\tone")


@pytest.mark.parametrize("renames_with_right", [True, False])
def test_memory_files_rename_leaves_no_copy_of_deleted_file(
    files: MemoryFiles,
    other: MemoryFiles,
    client: Strandline,
    users: Users,
    renames_with_right: bool,
) -> None:
    """Another program deletes it just before it is copied."""
    renaming, deleting = (files, other) if renames_with_right else (other, files)
    files.execute({**CREATE, "file_text": "secret"})
    renaming_client = vars(renaming)["_clients"].blocking
    act_before_request(renaming_client, "POST", "b.md", lambda: deleting.execute(DELETE))
    renaming.execute(RENAME)
    assert ".md" not in view(files, "/memories")
    said = str([*client.get_all(user=users.alice, agent="helper")])
    assert ("secret" in said) is not renames_with_right, "without the right it is hidden"
