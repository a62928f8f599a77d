"""The commands of Claude's memory tool on files of the service, without any package of a framework.

    files = MemoryFiles(user="alice", agent="helper")
    text = files.execute({"command": "view", "path": "/memories"})

`claude` has them as a tool of the package `anthropic`.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast
from weakref import WeakKeyDictionary

from strandline.adapters.client_pairs import ClientPair, join_participants_and_require_user
from strandline.adapters.memory_file_store import (
    FilePlace,
    FileWrite,
    MemoryFileStore,
    StoredFile,
    is_begun_rename,
    renew_key,
)
from strandline.adapters.memory_file_texts import (
    ROOT,
    MemoryCommandError,
    insert_text,
    is_below,
    list_ancestors,
    parse_path,
    replace_text,
    require_storable_text,
    show_directory,
    show_file,
)
from strandline.adapters.step_runners import run_steps, run_steps_async
from strandline.client.clients import AsyncStrandline, Strandline
from strandline.client.errors import GoneError, KeyConflictError
from strandline.client.verb_declarations import Steps

MemoryCommand: TypeAlias = Mapping[str, Any]
"""As Claude gives it, such as `{"command": "view", "path": "/memories"}`."""

_ATTEMPTS = 20
_MOST_UNSETTLED = 1000
_CHANGES_ALL_THE_TIME = "Others change this file all the time. Try again later."


@dataclass
class _Attempt:
    """A command of which nobody knows yet whether it was carried out."""

    write: FileWrite | None = None
    answer: str = ""
    is_after_erasure: bool = False
    """Whether what was stated before under the place's key was erased."""


class MemoryFiles:
    """A user's directory `/memories`, with the commands `view`, `create`, `str_replace`, `insert`,
    `delete` and `rename`.

    `user`, `agent` and `participants` say whose memory it is. `url` and `key` are by default
    STRANDLINE_URL and STRANDLINE_API_KEY; clients of your own may be given instead. Safe for
    threads and tasks, whose commands are carried out one after the other.

    A command that is given again after an error is carried out once. Raises ValueError where no
    user is named, MemoryCommandError with the tool's text for the model, and ServiceError."""

    def __init__(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        url: str | None = None,
        key: str | None = None,
        client: Strandline | None = None,
        async_client: AsyncStrandline | None = None,
    ) -> None:
        self._store = MemoryFileStore(join_participants_and_require_user(user, agent, participants))
        self._clients = ClientPair(url, key, client, async_client)
        self._attempts: dict[str, _Attempt] = {}
        self._lock = threading.Lock()
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )
        self._commands: dict[str, Callable[[MemoryCommand, _Attempt], Steps[str]]] = {
            "view": self._view,
            "create": self._create,
            "str_replace": self._str_replace,
            "insert": self._insert,
            "delete": self._delete,
            "rename": self._rename,
        }

    def execute(self, command: MemoryCommand) -> str:
        """Carry out a command: the tool's text for the model."""
        with self._lock:
            return run_steps(self._clients.blocking, self._execute(command))

    async def execute_async(self, command: MemoryCommand) -> str:
        """As `execute`, without blocking."""
        lock = self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        async with lock:
            return await run_steps_async(self._clients.asynchronous, self._execute(command))

    def clear(self) -> str:
        """Delete all files."""
        with self._lock:
            return run_steps(self._clients.blocking, self._clear())

    async def clear_async(self) -> str:
        """As `clear`, without blocking."""
        return await run_steps_async(self._clients.asynchronous, self._clear())

    def close(self) -> None:
        """Close the connections of the blocking client that this object made."""
        self._clients.close()

    async def aclose(self) -> None:
        """Close the connections of both clients that this object made."""
        await self._clients.aclose()

    # Commands -------------------------------------------------------------------------------------

    def _execute(self, command: MemoryCommand) -> Steps[str]:
        carry_out = self._commands.get(str(command.get("command")))
        if carry_out is None:
            raise MemoryCommandError(
                f"Unknown command: {command.get('command')}. It is one of"
                f" {', '.join(self._commands)}."
            )
        name = json.dumps(command, sort_keys=True, default=str)
        attempt = self._attempts.pop(name, None) or _Attempt()
        for _ in range(_ATTEMPTS):
            try:
                return (yield from carry_out(command, attempt))
            except MemoryCommandError:
                raise
            except (KeyConflictError, GoneError) as error:  # the path was changed meanwhile
                attempt = _Attempt(is_after_erasure=isinstance(error, GoneError))
            except BaseException:
                self._attempts[name] = attempt
                while len(self._attempts) > _MOST_UNSETTLED:
                    del self._attempts[next(iter(self._attempts))]
                raise
        raise MemoryCommandError(_CHANGES_ALL_THE_TIME)

    def _view(self, command: MemoryCommand, attempt: _Attempt) -> Steps[str]:
        path = parse_path(_take_text(command, "path"))
        view_range = _take_range(command)
        if path != ROOT:
            place = yield from self._store.read_place(path)
            if place.file is not None:
                return show_file(path, (yield from self._store.read_text(place.file)), view_range)
        files = yield from self._store.list_files()
        sizes = {name: file.size for name, file in files.items() if is_below(name, path)}
        if not sizes and path != ROOT:
            raise MemoryCommandError(
                f"The path {path} does not exist. Please provide a valid path."
            )
        return show_directory(path, sizes)

    def _create(self, command: MemoryCommand, attempt: _Attempt) -> Steps[str]:
        path = parse_path(_take_text(command, "path"))
        text = _take_text(command, "file_text")
        require_storable_text(path, text)
        if attempt.write is None:
            place = yield from self._require_free_place(path, f"File {path} already exists")
            place = renew_key(place, attempt.is_after_erasure)
            attempt.write = self._store.make_write(place, text)
            attempt.answer = f"File created successfully at: {path}"
        return (yield from self._settle(attempt))

    def _str_replace(self, command: MemoryCommand, attempt: _Attempt) -> Steps[str]:
        path = parse_path(_take_text(command, "path"))
        old, new = _take_text(command, "old_str"), _take_text(command, "new_str", default="")
        if attempt.write is None:
            place, file = yield from self._require_file(path)
            text = yield from self._store.read_text(file)
            text, attempt.answer = replace_text(path, text, old, new)
            require_storable_text(path, text)
            place = renew_key(place, attempt.is_after_erasure)
            attempt.write = self._store.make_write(place, text)
        return (yield from self._settle(attempt))

    def _insert(self, command: MemoryCommand, attempt: _Attempt) -> Steps[str]:
        path = parse_path(_take_text(command, "path"))
        line, new = _take_number(command, "insert_line"), _take_text(command, "insert_text")
        if attempt.write is None:
            place, file = yield from self._require_file(path)
            text = insert_text((yield from self._store.read_text(file)), line, new)
            require_storable_text(path, text)
            place = renew_key(place, attempt.is_after_erasure)
            attempt.write = self._store.make_write(place, text)
            attempt.answer = f"The file {path} has been edited."
        return (yield from self._settle(attempt))

    def _settle(self, attempt: _Attempt) -> Steps[str]:
        """Store what an attempt writes, and its answer."""
        assert attempt.write is not None
        yield from self._store.write(attempt.write)
        return attempt.answer

    def _delete(self, command: MemoryCommand, attempt: _Attempt) -> Steps[str]:
        path = parse_path(_take_text(command, "path"))
        if path == ROOT:
            raise MemoryCommandError(f"Cannot delete the {ROOT} directory itself")
        files = yield from self._list_files_at(path)
        if not files and not attempt.answer:
            raise MemoryCommandError(f"The path {path} does not exist")
        attempt.answer = f"Successfully deleted {path}"
        for file in files:
            yield from _repeat_until_unchanged(partial(self._remove, file.path))
        return attempt.answer

    def _remove(self, path: str, is_after_erasure: bool) -> Steps[None]:
        place = yield from self._store.read_place(path)
        if place.file is not None:
            yield from self._store.remove(renew_key(place, is_after_erasure))

    def _rename(self, command: MemoryCommand, attempt: _Attempt) -> Steps[str]:
        old = parse_path(_take_text(command, "old_path"))
        new = parse_path(_take_text(command, "new_path"))
        if old == ROOT:
            raise MemoryCommandError(f"Cannot rename the {ROOT} directory itself")
        if new in (old, ROOT):
            raise MemoryCommandError(f"The destination {new} already exists")
        if is_below(new, old):
            raise MemoryCommandError(f"Cannot move {old} into itself, to {new}")
        files = yield from self._list_files_at(old)
        if not attempt.answer:
            if not files:
                raise MemoryCommandError(f"The path {old} does not exist")
            if not is_begun_rename(files, old, (yield from self._list_files_at(new)), new):
                yield from self._require_free_place(new, f"The destination {new} already exists")
        attempt.answer = f"Successfully renamed {old} to {new}"
        moves = [(file.path, new + file.path[len(old) :], set[str]()) for file in files]
        if len(moves) > 1:
            for move in moves:
                yield from _repeat_until_unchanged(partial(self._copy, *move))
        for move in moves:
            yield from _repeat_until_unchanged(partial(self._move, *move))
        return attempt.answer

    def _move(self, old: str, new: str, copied_ids: set[str], is_erased: bool) -> Steps[None]:
        """Give a file another path: there first, so that it is never nowhere."""
        place = yield from self._copy(old, new, copied_ids, is_erased)
        if place.file is not None:
            yield from self._store.mark_moved(renew_key(place, is_erased), new)

    def _copy(self, old: str, new: str, copied_ids: set[str], is_erased: bool) -> Steps[FilePlace]:
        """Give a file another path with its present text, beside its own, which is the result.
        `copied_ids` gets the statement: where the file is deleted meanwhile, so is its copy."""
        place = yield from self._store.read_place(old)
        target = yield from self._store.read_place(new)
        file, there, target = place.file, target.file, renew_key(target, is_erased)
        if file is None:
            if there is not None and there.copied_id in copied_ids and not place.is_moved:
                yield from self._store.remove(target)
            return place
        if there is not None and there.file_id != file.file_id:
            raise MemoryCommandError(f"The destination {new} already exists")
        if there is None or there.copied_id not in (None, str(file.event_id)):
            copied_ids.add(str(file.event_id))
            yield from self._store.write(self._store.make_copy(file, target))
        return place

    def _clear(self) -> Steps[str]:
        for path in (yield from self._store.list_files()):
            yield from _repeat_until_unchanged(partial(self._remove, path))
        return "All memory cleared"

    # Places ---------------------------------------------------------------------------------------

    def _require_file(self, path: str) -> Steps[tuple[FilePlace, StoredFile]]:
        place = yield from self._store.read_place(path)
        if place.file is not None:
            return place, place.file
        files = yield from self._store.list_files()
        if path == ROOT or any(is_below(name, path) for name in files):
            raise MemoryCommandError(f"The path {path} is not a file.")
        raise MemoryCommandError(f"The path {path} does not exist. Please provide a valid path.")

    def _require_free_place(self, path: str, message: str) -> Steps[FilePlace]:
        """A path at which there is neither a file nor a directory."""
        files = yield from self._store.list_files()
        if path == ROOT or path in files or any(is_below(name, path) for name in files):
            raise MemoryCommandError(message)
        for directory in list_ancestors(path):
            if directory in files:
                raise MemoryCommandError(f"The path {directory} is a file, not a directory.")
        place = yield from self._store.read_place(path)
        if place.file is not None:  # since the list was read
            raise MemoryCommandError(message)
        return place

    def _list_files_at(self, path: str) -> Steps[list[StoredFile]]:
        """The file at a path, or those of the directory."""
        files = yield from self._store.list_files()
        return [file for name, file in files.items() if name == path or is_below(name, path)]


def _repeat_until_unchanged(change: Callable[[bool], Steps[Any]]) -> Steps[None]:
    """Change a path, again where others changed it meanwhile. The change is told whether what was
    stated under its key was erased."""
    is_after_erasure = False
    for _ in range(_ATTEMPTS):
        try:
            return (yield from change(is_after_erasure))
        except (KeyConflictError, GoneError) as error:
            is_after_erasure = isinstance(error, GoneError)
    raise MemoryCommandError(_CHANGES_ALL_THE_TIME)


# Parameters ---------------------------------------------------------------------------------------


def _take_text(command: MemoryCommand, name: str, default: str | None = None) -> str:
    value = command.get(name, default)
    if not isinstance(value, str):
        raise MemoryCommandError(f"Invalid `{name}` parameter: {value!r}. It should be a text.")
    return value


def _take_number(command: MemoryCommand, name: str) -> int:
    value = command.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise MemoryCommandError(f"Invalid `{name}` parameter: {value!r}. It should be a number.")
    return value


def _take_range(command: MemoryCommand) -> list[int] | None:
    value = command.get("view_range")
    if not value:
        return None
    numbers = cast("list[Any]", value) if isinstance(value, list) else []
    if len(numbers) != 2 or not all(type(number) is int for number in numbers):
        raise MemoryCommandError(
            f"Invalid `view_range` parameter: {value!r}. It should be two numbers, [first, last]."
        )
    return numbers
