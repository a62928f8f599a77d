"""Claude's memory tool on the service: its six commands, its texts, and what becomes of history."""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from anthropic.tools import ToolError

from strandline import AsyncStrandline, Strandline
from strandline.adapters.claude import AsyncStrandlineMemoryTool, StrandlineMemoryTool
from strandline.adapters.memory_file_texts import MemoryCommandError
from strandline.adapters.memory_files import MemoryFiles
from tests.strandline.adapters.conftest import Service, Users, act_before_request

NOTES = "/memories/notes.md"
LISTED = "Here're the files and directories up to 2 levels deep in"


def list_field(client: Strandline, user: str, path: str) -> Any:
    """A file's field of the knowledge graph, with its revisions."""
    found = client.graph.search("claude-memory:files", user=user, mode="exact", types=["topic"])
    field = path[1:].replace("/", "%2F")
    return client.graph.field(found.nodes[0].id, field, user=user, limit=500)


@pytest.fixture
def files(client: Strandline, users: Users) -> MemoryFiles:
    return MemoryFiles(user=users.alice, agent="helper", client=client)


def test_claude_memory_tool_carries_out_six_commands(files: MemoryFiles) -> None:
    commands: list[tuple[dict[str, Any], str]] = [
        ({"command": "view", "path": "/memories"},
         f"{LISTED} /memories, excluding hidden items:\n0B\t/memories"),
        ({"command": "create", "path": NOTES, "file_text": "one\ntwo\nthree\n"},
         f"File created successfully at: {NOTES}"),
        ({"command": "str_replace", "path": NOTES, "old_str": "two", "new_str": "2"},
         "The memory file has been edited. Here is the snippet showing the change (with line"
         " numbers):\n     1\tone\n     2\t2\n     3\tthree\n     4\t"),
        ({"command": "insert", "path": NOTES, "insert_line": 1, "insert_text": "1.5\n"},
         f"The file {NOTES} has been edited."),
        ({"command": "view", "path": NOTES, "view_range": [1, 3]},
         f"Here's the content of {NOTES} with line numbers:\n     1\tone\n     2\t1.5\n     3\t2"),
        ({"command": "rename", "old_path": NOTES, "new_path": "/memories/old/deep/down/n.md"},
         f"Successfully renamed {NOTES} to /memories/old/deep/down/n.md"),
        ({"command": "create", "path": "/memories/.hidden", "file_text": "x" * 2000},
         "File created successfully at: /memories/.hidden"),
        ({"command": "view", "path": "/memories/"},
         f"{LISTED} /memories, excluding hidden items:\n2.0K\t/memories\n16B\t/memories/old/\n"
         "16B\t/memories/old/deep/"),
        ({"command": "view", "path": "/memories/old/deep"},
         f"{LISTED} /memories/old/deep, excluding hidden items:\n16B\t/memories/old/deep\n"
         "16B\t/memories/old/deep/down/\n16B\t/memories/old/deep/down/n.md"),
        ({"command": "rename", "old_path": "/memories/old", "new_path": "/memories/new"},
         "Successfully renamed /memories/old to /memories/new"),
        ({"command": "delete", "path": "/memories/new"},
         "Successfully deleted /memories/new"),
        ({"command": "view", "path": "/memories"},
         f"{LISTED} /memories, excluding hidden items:\n2.0K\t/memories"),
    ]  # fmt: skip
    for command, text in commands:
        assert files.execute(command) == text


def test_claude_memory_tool_says_what_is_wrong(files: MemoryFiles) -> None:
    files.execute({"command": "create", "path": NOTES, "file_text": "Hello\nMiddle\nHello"})
    files.execute({"command": "create", "path": "/memories/dir/a.md", "file_text": "a"})
    missing = "/memories/missing.md"
    edit = {"old_str": "a", "new_str": "b"}
    errors: list[tuple[dict[str, Any], str]] = [
        ({"command": "view", "path": missing},
         f"The path {missing} does not exist. Please provide a valid path."),
        ({"command": "create", "path": NOTES, "file_text": ""}, f"File {NOTES} already exists"),
        ({"command": "create", "path": "/memories/dir", "file_text": ""},
         "File /memories/dir already exists"),
        ({"command": "create", "path": f"{NOTES}/a", "file_text": ""},
         f"The path {NOTES} is a file, not a directory."),
        ({"command": "str_replace", "path": missing, **edit},
         f"The path {missing} does not exist. Please provide a valid path."),
        ({"command": "str_replace", "path": "/memories/dir", **edit},
         "The path /memories/dir is not a file."),
        ({"command": "str_replace", "path": NOTES, **edit},
         f"No replacement was performed, old_str `a` did not appear verbatim in {NOTES}."),
        ({"command": "str_replace", "path": NOTES, "old_str": "Hello", "new_str": "Hi"},
         "No replacement was performed. Multiple occurrences of old_str `Hello` in lines: 1, 3."
         " Please ensure it is unique"),
        ({"command": "str_replace", "path": NOTES, "old_str": "", "new_str": "Hi"},
         "No replacement was performed, old_str is empty. Give the text that is to be replaced."),
        ({"command": "insert", "path": missing, "insert_line": 0, "insert_text": "x"},
         f"The path {missing} does not exist. Please provide a valid path."),
        ({"command": "insert", "path": NOTES, "insert_line": 4, "insert_text": "x"},
         "Invalid `insert_line` parameter: 4. It should be within the range [0, 3]."),
        ({"command": "insert", "path": NOTES, "insert_line": "1", "insert_text": "x"},
         "Invalid `insert_line` parameter: '1'. It should be a number."),
        ({"command": "view", "path": NOTES, "view_range": [3, 2]},
         "Invalid `view_range` parameter: [3, 2]. It should be [first, last] within the lines of"
         " the file, [1, 3]; -1 as last stands for the end."),
        ({"command": "view", "path": NOTES, "view_range": [1]},
         "Invalid `view_range` parameter: [1]. It should be two numbers, [first, last]."),
        ({"command": "delete", "path": missing}, f"The path {missing} does not exist"),
        ({"command": "delete", "path": "/memories/"},
         "Cannot delete the /memories directory itself"),
        ({"command": "rename", "old_path": missing, "new_path": "/memories/b"},
         f"The path {missing} does not exist"),
        ({"command": "rename", "old_path": NOTES, "new_path": "/memories/dir"},
         "The destination /memories/dir already exists"),
        ({"command": "rename", "old_path": "/memories/dir", "new_path": "/memories/dir/in"},
         "Cannot move /memories/dir into itself, to /memories/dir/in"),
        ({"command": "rename", "old_path": "/memories", "new_path": "/memories/b"},
         "Cannot rename the /memories directory itself"),
        ({"command": "create", "path": "/memories/a", "file_text": "x" * (1024**2 + 1)},
         "The file /memories/a would have 1,048,577 bytes, at most 1,048,576. Split it."),
        ({"command": "create", "path": "/memories/a", "file_text": "a\0b"},
         "The text for /memories/a has a NUL or half a character, which no file may have."),
        ({"command": "create", "path": "/memories/a"},
         "Invalid `file_text` parameter: None. It should be a text."),
        ({"command": "undo_edit", "path": NOTES},
         "Unknown command: undo_edit. It is one of view, create, str_replace, insert, delete,"
         " rename."),
    ]  # fmt: skip
    for command, text in errors:
        with pytest.raises(MemoryCommandError) as caught:
            files.execute(command)
        assert str(caught.value) == text
    with pytest.raises(ValueError, match="name the user"):
        StrandlineMemoryTool(agent="helper")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/etc/passwd", "must start with /memories"),
        ("/memoriesx/a", "must start with /memories"),
        ("memories/a", "must start with /memories"),
        ("/memories/../etc", "would escape"),
        ("/memories/a/..", "would escape"),
        ("/memories/%2e%2e/etc", "would escape"),
        ("/memories/%252E%252e/etc", "would escape"),
        ("/memories/..%2fetc", "escaped slash"),
        ("/memories/a\0", "control character"),
        ("/memories/a%00", "control character"),
        ("/memories/a\nb", "control character"),
        ("/memories/..\\etc", "backslash"),
        ("/memories/%5c..%5cetc", "backslash"),
        ("/memories/" + "a" * 300, "at most 300"),
    ],
)
def test_claude_memory_tool_refuses_path(files: MemoryFiles, path: str, reason: str) -> None:
    """No command leaves the directory, whichever parameter has the path."""
    for command in (
        {"command": "view", "path": path},
        {"command": "create", "path": path, "file_text": "x"},
        {"command": "str_replace", "path": path, "old_str": "x", "new_str": "y"},
        {"command": "insert", "path": path, "insert_line": 0, "insert_text": "x"},
        {"command": "delete", "path": path},
        {"command": "rename", "old_path": path, "new_path": NOTES},
        {"command": "rename", "old_path": NOTES, "new_path": path},
    ):
        with pytest.raises(MemoryCommandError, match=reason):
            files.execute(command)


def test_claude_memory_tool_keeps_history_of_hundred_edits(
    files: MemoryFiles, client: Strandline, users: Users
) -> None:
    files.execute({"command": "create", "path": NOTES, "file_text": "The tide is 0 high."})
    for number in range(99):
        edit = {"old_str": f"is {number} high", "new_str": f"is {number + 1} high"}
        files.execute({"command": "str_replace", "path": NOTES, **edit})
    history = list_field(client, users.alice, NOTES)
    texts = [revision.value["text"] for revision in history.history]
    assert texts == [f"The tide is {number} high." for number in reversed(range(100))]
    assert history.current.value["text"] == "The tide is 99 high."
    hits = client.recall("tide high", user=users.alice, agent="helper", min_relevance=0).hits
    shown = [hit.text for hit in hits if hit.text and "tide" in hit.text]
    assert len(shown) == 1
    assert "99 high" in str(shown[0])
    context = client.context("tide high", user=users.alice, agent="helper").text
    assert "99 high" in context
    assert "98 high" not in context
    assert not client.recall("tide high", user=users.bob, agent="helper", min_relevance=0).hits


@pytest.mark.parametrize("may_erase", [True, False])
def test_claude_memory_tool_deletes_with_history(
    service: Service, users: Users, may_erase: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Also what it had under another name, and payloads."""
    with Strandline(service.url, service.erasing_key if may_erase else service.key) as client:
        files = MemoryFiles(user=users.alice, agent="helper", client=client)
        long_name = f"/memories/{'n' * 150}.md"
        files.execute({"command": "create", "path": NOTES, "file_text": "secret one"})
        edit = {"old_str": "one", "new_str": "two" * 9000}
        files.execute({"command": "str_replace", "path": NOTES, **edit})
        files.execute({"command": "rename", "old_path": NOTES, "new_path": long_name})
        files.execute({"command": "create", "path": NOTES, "file_text": "another file"})
        view = files.execute({"command": "view", "path": long_name})
        assert view.endswith("secret " + "two" * 9000)
        found = client.recall("secret", user=users.alice, agent="helper", min_relevance=0)
        assert "nnn" in str(found.hits[0].text), "by its beginning, under its present name"
        with caplog.at_level(logging.WARNING, "strandline"):
            files.execute({"command": "delete", "path": long_name})
        with pytest.raises(MemoryCommandError, match="does not exist"):
            files.execute({"command": "view", "path": long_name})
        assert files.execute({"command": "view", "path": NOTES}).endswith("another file")
        events = [*client.get_all(user=users.alice, agent="helper")]
        assert ("secret" in str(events)) is not may_erase
        assert ("nnn" in str(events)) is not may_erase
        assert (sum(event.type == "upload" for event in events) == 0) is may_erase
        files.execute({"command": "create", "path": long_name, "file_text": "new"})
        assert files.execute({"command": "view", "path": long_name}).endswith("\tnew")
    assert len([one for one in caplog.messages if "stays in the log" in one]) == int(not may_erase)


def test_claude_memory_tool_keeps_file_of_one_mebibyte(files: MemoryFiles) -> None:
    for name, unit in (("control", "\x01"), ("plain", "line\n"), ("wide", "🌊")):
        path, count = f"/memories/{name}", 1024**2 // len(unit.encode())
        text = unit * count + "x" * (1024**2 - count * len(unit.encode()))
        files.execute({"command": "create", "path": path, "file_text": text})
        lines = files.execute({"command": "view", "path": path}).split("\n")[1:]
        assert "\n".join(line.partition("\t")[2] for line in lines) == text


def lose_answers(client: Any, which: Callable[[Any], bool]) -> Callable[[], None]:
    """From now on the answers to such requests do not arrive; until what is given is called."""
    perform = client.perform

    def lose(call: Any) -> Any:
        answer = perform(call)
        if which(call):
            raise ConnectionError("the answer was lost")
        return answer

    client.perform = lose
    return lambda: setattr(client, "perform", perform)


def test_claude_memory_tool_carries_out_retried_command_once(
    files: MemoryFiles, client: Strandline, users: Users
) -> None:
    commands: list[dict[str, Any]] = [
        {"command": "create", "path": NOTES, "file_text": "begin\n"},
        {"command": "insert", "path": NOTES, "insert_line": 1, "insert_text": "long " * 4000},
        {"command": "insert", "path": NOTES, "insert_line": 1, "insert_text": "again"},
        {"command": "str_replace", "path": NOTES, "old_str": "begin", "new_str": "begin begin"},
        {"command": "rename", "old_path": NOTES, "new_path": "/memories/b.md"},
        {"command": "delete", "path": "/memories/b.md"},
    ]
    for number, command in enumerate(commands):
        find = lose_answers(client, lambda call: call.method == "POST" and "query" not in call.path
                            and "search" not in call.path)  # fmt: skip
        with pytest.raises(ConnectionError):
            files.execute(command)
        find()
        assert files.execute(command)
        if number == 3:
            lines = files.execute({"command": "view", "path": NOTES}).split("\n")[1:]
            texts = [line.partition("\t")[2] for line in lines]
            assert texts == ["begin begin", "again", "long " * 4000, ""]
            assert list_field(client, users.alice, NOTES).revisions == 4
    with pytest.raises(MemoryCommandError, match="does not exist"):
        files.execute(commands[-1])


def test_claude_memory_tool_edits_on_top_of_other_programs(
    files: MemoryFiles, client: Strandline, users: Users
) -> None:
    """Two programs, each with four threads, insert the same line at the same time."""
    files.execute({"command": "create", "path": NOTES, "file_text": ""})
    other = MemoryFiles(user=users.alice, agent="helper", client=client)
    insert = {"command": "insert", "path": NOTES, "insert_line": 0, "insert_text": "more"}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(MemoryFiles.execute, [files, other] * 8, [insert] * 16))
    view = files.execute({"command": "view", "path": NOTES})
    assert view.count("\tmore") == 16
    assert list_field(client, users.alice, NOTES).revisions == 17
    create = {"command": "create", "path": "/memories/lock", "file_text": "mine"}
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(each.execute, create) for each in (files, other)]
    assert [str(one.exception()) for one in made if one.exception()] == [
        "File /memories/lock already exists"
    ]


@pytest.fixture
def other(service: Service, users: Users) -> Iterator[MemoryFiles]:
    """Another program with the same memory."""
    with Strandline(service.url, service.erasing_key) as client:
        yield MemoryFiles(user=users.alice, agent="helper", client=client)


EDIT = {"command": "str_replace", "path": NOTES, "old_str": "one", "new_str": "two"}
OTHER_NOTES = "/memories/b.md"


@pytest.mark.parametrize("before", ["b.md", "notes.md"])
def test_claude_memory_tool_renames_what_others_edit(
    files: MemoryFiles, other: MemoryFiles, client: Strandline, before: str
) -> None:
    """Before the text is copied, or before the former path is left."""
    files.execute({"command": "create", "path": NOTES, "file_text": "one"})
    act_before_request(client, "POST", before, lambda: other.execute(EDIT))
    files.execute({"command": "rename", "old_path": NOTES, "new_path": OTHER_NOTES})
    assert files.execute({"command": "view", "path": OTHER_NOTES}).endswith("\ttwo")
    with pytest.raises(MemoryCommandError, match="does not exist"):
        files.execute({"command": "view", "path": NOTES})


@pytest.mark.parametrize("write_count", range(1, 6))
def test_claude_memory_tool_ends_rename_of_another_program(
    files: MemoryFiles, other: MemoryFiles, client: Strandline, write_count: int
) -> None:
    """That ended after so many of the six writes by which a directory of three files is moved."""
    for name in "abc":
        create = {"command": "create", "path": f"/memories/old/{name}", "file_text": f"in {name}"}
        files.execute(create)
    perform, writes = client.perform, list[str]()

    def fail_after_writes(call: Any) -> Any:
        if call.method == "POST" and "/fields/" in call.path:
            if len(writes) == write_count:
                raise ConnectionError("the program ended")
            writes.append(call.path)
        return perform(call)

    client.perform = fail_after_writes
    rename = {"command": "rename", "old_path": "/memories/old", "new_path": "/memories/new"}
    with pytest.raises(ConnectionError):
        files.execute(rename)
    client.perform = perform
    assert other.execute(rename) == "Successfully renamed /memories/old to /memories/new"
    listed = other.execute({"command": "view", "path": "/memories"})
    assert [line.partition("\t")[2] for line in listed.split("\n")[2:]] == [
        "/memories/new/", *(f"/memories/new/{name}" for name in "abc"),
    ]  # fmt: skip
    for name in "abc":
        view = other.execute({"command": "view", "path": f"/memories/new/{name}"})
        assert view.endswith(f"\tin {name}")


def test_claude_memory_tool_renames_into_no_other_directory(
    files: MemoryFiles, other: MemoryFiles
) -> None:
    """Also where all that it has was renamed to it before."""
    rename = {"command": "rename", "old_path": "/memories/old", "new_path": "/memories/new"}
    for name in ("a", "b"):
        create = {"command": "create", "path": f"/memories/old/{name}", "file_text": name}
        files.execute(create)
        if name == "a":
            files.execute(rename)
    with pytest.raises(MemoryCommandError, match="The destination /memories/new already exists"):
        other.execute(rename)


def test_claude_memory_tool_creates_nothing_over_new_file(
    files: MemoryFiles, other: MemoryFiles, client: Strandline
) -> None:
    files.execute({"command": "create", "path": OTHER_NOTES, "file_text": "any"})
    create = {"command": "create", "path": NOTES}
    act = partial(other.execute, {**create, "file_text": "theirs"})
    act_before_request(client, "GET", "notes.md", act)
    with pytest.raises(MemoryCommandError, match="already exists"):
        files.execute({**create, "file_text": "mine"})
    assert files.execute({"command": "view", "path": NOTES}).endswith("\ttheirs")


@pytest.mark.parametrize("may_erase", [True, False])
def test_claude_memory_tool_edits_no_deleted_file(
    service: Service, client: Strandline, users: Users, other: MemoryFiles, may_erase: bool
) -> None:
    """What is deleted does not come back by an edit whose program had read it before."""
    with Strandline(service.url, service.erasing_key if may_erase else service.key) as own:
        files = MemoryFiles(user=users.alice, agent="helper", client=own)
        files.execute({"command": "create", "path": NOTES, "file_text": "secret one"})
        delete = partial(files.execute, {"command": "delete", "path": NOTES})
        others_client = vars(other)["_clients"].blocking
        act_before_request(others_client, "POST", "notes.md", delete)
        with pytest.raises(MemoryCommandError, match="does not exist"):
            other.execute(EDIT)
        assert NOTES not in files.execute({"command": "view", "path": "/memories"})
    said = str([*client.get_all(user=users.alice, agent="helper")])
    assert "two" not in said
    assert ("secret" in said) is not may_erase


def test_claude_memory_tool_of_sdk_blocks_or_not(service: Service, users: Users) -> None:
    """The tool as the SDK calls it: `call` with what the model gave."""
    create = {"command": "create", "path": NOTES, "file_text": "tea"}
    with Strandline(service.url, service.erasing_key) as client:
        tool = StrandlineMemoryTool(
            user=users.alice, client=client, cache_control={"type": "ephemeral"}
        )
        kind = {"type": "memory_20250818", "name": "memory"}
        assert tool.to_dict() == {**kind, "cache_control": {"type": "ephemeral"}}
        assert tool.call(create) == f"File created successfully at: {NOTES}"
        for given in (create, {**create, "path": 7}, {"command": "view", "path": "/memories/../a"}):
            with pytest.raises(ToolError):
                tool.call(json.loads(json.dumps(given)))

    async def use() -> None:
        async with AsyncStrandline(service.url, service.erasing_key) as own:
            tool = AsyncStrandlineMemoryTool(user=users.alice, async_client=own)
            assert await tool.call({"command": "view", "path": NOTES}) == (
                f"Here's the content of {NOTES} with line numbers:\n     1\ttea"
            )
            with pytest.raises(ToolError, match="already exists"):
                await tool.call(create)
            insert = {"command": "insert", "path": NOTES, "insert_line": 0, "insert_text": "more"}
            await asyncio.gather(*(tool.call(insert) for _ in range(8)))
            assert str(await tool.call({"command": "view", "path": NOTES})).count("more") == 8
            hers = AsyncStrandlineMemoryTool(user=users.bob, async_client=own)
            assert NOTES not in str(await hers.call({"command": "view", "path": "/memories"}))
            assert await tool.clear_all_memory() == "All memory cleared"
            assert NOTES not in str(await tool.call({"command": "view", "path": "/memories"}))
            assert "tea" not in str([one async for one in own.get_all(user=users.alice)])

    asyncio.run(use())
