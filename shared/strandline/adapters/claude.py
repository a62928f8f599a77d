"""Claude's memory tool, `memory_20250818`, for the tool runner of the package `anthropic`.

    memory = StrandlineMemoryTool(user="alice", agent="helper")
    runner = client.beta.messages.tool_runner(tools=[memory], ...)

`memory_files` has the same commands without the package.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from anthropic import BaseModel
from anthropic.tools import ToolError
from anthropic.tools.memory import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool
from anthropic.types.beta import (
    BetaCacheControlEphemeralParam,
    BetaMemoryTool20250818CreateCommand,
    BetaMemoryTool20250818DeleteCommand,
    BetaMemoryTool20250818InsertCommand,
    BetaMemoryTool20250818RenameCommand,
    BetaMemoryTool20250818StrReplaceCommand,
    BetaMemoryTool20250818ViewCommand,
)

from strandline.adapters.memory_file_texts import MemoryCommandError
from strandline.adapters.memory_files import MemoryFiles
from strandline.client.clients import AsyncStrandline, Strandline


class StrandlineMemoryTool(BetaAbstractMemoryTool):
    """Claude's memory tool whose directory `/memories` is memory of the service.

    `user`, `agent` and `participants` say whose memory it is. `url` and `key` are by default
    STRANDLINE_URL and STRANDLINE_API_KEY; a client of your own may be given instead. Safe for
    threads.

    An edit is a new revision of the file, and its history stays. `delete` erases a file with its
    history where the key has the right `erase`; without it the file is hidden, and a warning says
    so once. Raises ValueError where no user is named, ToolError with the text for the model, and
    ServiceError."""

    def __init__(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        url: str | None = None,
        key: str | None = None,
        client: Strandline | None = None,
        cache_control: BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._files = MemoryFiles(
            user=user, agent=agent, participants=participants, url=url, key=key, client=client
        )

    def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """What a file says, with the numbers of its lines, or what a directory has."""
        return self._carry_out(command)

    def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Make a file."""
        return self._carry_out(command)

    def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace the one occurrence of a text in a file."""
        return self._carry_out(command)

    def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Insert lines into a file, after a line."""
        return self._carry_out(command)

    def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Delete a file, or a directory with all in it."""
        return self._carry_out(command)

    def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Give a file or a directory another path."""
        return self._carry_out(command)

    def clear_all_memory(self) -> str:
        """Delete all files."""
        return self._files.clear()

    def close(self) -> None:
        """Close the connections of the client that this tool made."""
        self._files.close()

    def _carry_out(self, command: BaseModel) -> str:
        try:
            return self._files.execute(_list_parameters(command))
        except MemoryCommandError as error:
            raise ToolError(str(error)) from error


class AsyncStrandlineMemoryTool(BetaAsyncAbstractMemoryTool):
    """As StrandlineMemoryTool, for AsyncAnthropic. Safe for tasks."""

    def __init__(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        participants: Iterable[str] | None = None,
        url: str | None = None,
        key: str | None = None,
        async_client: AsyncStrandline | None = None,
        cache_control: BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._files = MemoryFiles(
            user=user,
            agent=agent,
            participants=participants,
            url=url,
            key=key,
            async_client=async_client,
        )

    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """What a file says, with the numbers of its lines, or what a directory has."""
        return await self._carry_out(command)

    async def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Make a file."""
        return await self._carry_out(command)

    async def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace the one occurrence of a text in a file."""
        return await self._carry_out(command)

    async def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Insert lines into a file, after a line."""
        return await self._carry_out(command)

    async def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Delete a file, or a directory with all in it."""
        return await self._carry_out(command)

    async def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Give a file or a directory another path."""
        return await self._carry_out(command)

    async def clear_all_memory(self) -> str:
        """Delete all files."""
        return await self._files.clear_async()

    async def aclose(self) -> None:
        """Close the connections of the client that this tool made."""
        await self._files.aclose()

    async def _carry_out(self, command: BaseModel) -> str:
        try:
            return await self._files.execute_async(_list_parameters(command))
        except MemoryCommandError as error:
            raise ToolError(str(error)) from error


def _list_parameters(command: BaseModel) -> Mapping[str, Any]:
    """The parameters of a command that the model gave, which nobody has checked yet."""
    return {name: getattr(command, name, None) for name in type(command).model_fields}
