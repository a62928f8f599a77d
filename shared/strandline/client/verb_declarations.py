"""Verbs as declarations: a verb's signature is its request, its return type is its answer, and its
body is empty. One declaration serves the synchronous and the asynchronous client.

- A parameter in the path goes there, those of a GET and those named in `in_query` into the query
  string, all others into the body. What is None is left out.
- `KEEP` is the default of what a change leaves as it is; there None is sent, as null.
- `user`, `agent` and `participants` together become `participants`. `everybody` of a read goes
  into the query string.
- A verb with `idempotency_key` sends one, of its own if the caller gives none, so that a repeated
  request is stored once.
"""

from __future__ import annotations

import contextlib
import functools
import time
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar, overload

from strandline.client import answers
from strandline.client.errors import UnexpectedAnswerError
from strandline.client.request_building import (
    Call,
    Operation,
    VerbGroup,
    VerbSignature,
    parse_answer,
)
from strandline.client.transport import AsyncCaller, SyncCaller

if TYPE_CHECKING:
    from typing_extensions import Self

P = ParamSpec("P")
T = TypeVar("T")


class _VerbDescriptor:
    """Gives a caller the form of a verb that it can use."""

    _sync: Callable[..., Any]
    _async: Callable[..., Any]

    def _bind_sync_or_async(self, instance: SyncCaller | AsyncCaller | None, owner: type) -> Any:
        if instance is None:  # a function, so that help() and inspect.signature() know it
            function = self._async if issubclass(owner, AsyncCaller) else self._sync
            vars(function).update(self._list_shared_attributes())
            return function
        function = self._sync if isinstance(instance, SyncCaller) else self._async
        return types.MethodType(function, instance)

    def _list_shared_attributes(self) -> dict[str, Any]:
        """What a verb of the class has besides being a function."""
        names = ("call", "declaration", "page_type", "member")
        return {name: getattr(self, name) for name in names if hasattr(self, name)}


class Verb(_VerbDescriptor, Generic[P, T]):
    """One operation: `client.verb(...)` gives its answer, of an asynchronous client an
    awaitable."""

    def __init__(self, function: Callable[Concatenate[Any, P], T], operation: Operation) -> None:
        self.declaration = VerbSignature(function, operation)

        @functools.wraps(function)
        def perform_now(caller: SyncCaller, *args: P.args, **kwargs: P.kwargs) -> T:
            return caller.perform(self.call(caller, *args, **kwargs))

        @functools.wraps(function)
        async def perform_async(caller: AsyncCaller, *args: P.args, **kwargs: P.kwargs) -> T:
            return await caller.perform(self.call(caller, *args, **kwargs))

        self._sync, self._async = perform_now, perform_async

    def call(self, caller: VerbGroup, /, *args: P.args, **kwargs: P.kwargs) -> Call[T]:
        """The request of these arguments."""
        return self.declaration.build_call(caller, args, kwargs, self._parse_answer)

    def _parse_answer(self, content: bytes) -> T:
        return parse_answer(self.declaration.answer_type, content)

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: SyncCaller, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, instance: AsyncCaller, owner: type
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, instance: SyncCaller | AsyncCaller | None, owner: type) -> Any:
        return self._bind_sync_or_async(instance, owner)


class Pages(_VerbDescriptor, Generic[P, T]):
    """A list in pages: `for item in client.verb(...)`, or `async for`. A page is read when it is
    needed. The declaration returns the type of an item."""

    def __init__(
        self, function: Callable[Concatenate[Any, P], T], operation: Operation, page: str
    ) -> None:
        self.declaration = VerbSignature(function, operation)
        self.page_type, _, self.member = page.partition(".")

        @functools.wraps(function)
        def iterate(caller: SyncCaller, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
            call: Call[Any] | None = self.call(caller, *args, **kwargs)
            cursors = set[str]()
            while call is not None:
                page = caller.perform(call)
                yield from getattr(page, self.member)
                call = _make_next_page_call(call, page.next_cursor, cursors)

        @functools.wraps(function)
        async def iterate_async(
            caller: AsyncCaller, *args: P.args, **kwargs: P.kwargs
        ) -> AsyncIterator[T]:
            call: Call[Any] | None = self.call(caller, *args, **kwargs)
            cursors = set[str]()
            while call is not None:
                page = await caller.perform(call)
                for item in getattr(page, self.member):
                    yield item
                call = _make_next_page_call(call, page.next_cursor, cursors)

        self._sync, self._async = iterate, iterate_async

    def call(self, caller: VerbGroup, /, *args: P.args, **kwargs: P.kwargs) -> Call[Any]:
        """The request of the first page."""
        return self.declaration.build_call(caller, args, kwargs, self._parse_page)

    def _parse_page(self, content: bytes) -> Any:
        return parse_answer(getattr(answers, self.page_type), content)

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: SyncCaller, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, instance: AsyncCaller, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, instance: SyncCaller | AsyncCaller | None, owner: type) -> Any:
        return self._bind_sync_or_async(instance, owner)


def _make_next_page_call(
    call: Call[Any], cursor: str | None, cursors: set[str]
) -> Call[Any] | None:
    """The call for the page after this one. `cursors` has those of the pages before. Raises
    UnexpectedAnswerError for one that repeats, which would lead round for ever."""
    if cursor is None:
        return None
    if cursor in cursors:
        raise UnexpectedAnswerError(f"The pages of {call.path} repeat: a cursor came twice.")
    cursors.add(cursor)
    query = [(name, value) for name, value in call.query if name != "cursor"]
    return replace(call, query=[*query, ("cursor", cursor)])


@dataclass(frozen=True)
class BlockingStep(Generic[T]):
    """A step that takes time without a request; an asynchronous client does it in a thread."""

    function: Callable[[], T]


@dataclass(frozen=True)
class PauseStep:
    """A step that only lets time pass."""

    seconds: float


Steps: TypeAlias = Generator[Call[Any] | BlockingStep[Any] | PauseStep, Any, T]
"""Several requests in a row: yields each, is sent its answer, and returns the result."""


class MultiRequestVerb(_VerbDescriptor, Generic[P, T]):
    """A verb of several requests, written once as a generator of them."""

    def __init__(self, function: Callable[Concatenate[Any, P], Steps[T]]) -> None:
        @functools.wraps(function)
        def run_steps(caller: SyncCaller, *args: P.args, **kwargs: P.kwargs) -> T:
            answer: Any = None
            with contextlib.closing(function(caller, *args, **kwargs)) as steps:
                while True:
                    try:
                        step = steps.send(answer)
                    except StopIteration as end:
                        return end.value
                    if isinstance(step, PauseStep):
                        time.sleep(step.seconds)
                    elif isinstance(step, BlockingStep):
                        answer = step.function()
                    else:
                        answer = caller.perform(step)

        @functools.wraps(function)
        async def run_steps_async(caller: AsyncCaller, *args: P.args, **kwargs: P.kwargs) -> T:
            import asyncio  # 40 ms, which no synchronous program has to wait

            answer: Any = None
            with contextlib.closing(function(caller, *args, **kwargs)) as steps:
                while True:
                    try:
                        step = steps.send(answer)
                    except StopIteration as end:
                        return end.value
                    if isinstance(step, PauseStep):
                        await asyncio.sleep(step.seconds)
                    elif isinstance(step, BlockingStep):
                        answer = await asyncio.to_thread(step.function)
                    else:
                        answer = await caller.perform(step)

        self._sync, self._async = run_steps, run_steps_async

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: SyncCaller, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, instance: AsyncCaller, owner: type
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, instance: SyncCaller | AsyncCaller | None, owner: type) -> Any:
        return self._bind_sync_or_async(instance, owner)


def yield_step(step: Call[T] | BlockingStep[T]) -> Steps[T]:
    """One step of a procedure: `answer = yield from yield_step(call)`."""
    return (yield step)


def yield_pause(seconds: float) -> Steps[None]:
    """Let so many seconds pass: `yield from yield_pause(1.0)`."""
    yield PauseStep(seconds)


class _VerbDecorator:
    def __init__(self, operation: Operation) -> None:
        self._operation = operation

    def __call__(self, function: Callable[Concatenate[Any, P], T]) -> Verb[P, T]:
        return Verb(function, self._operation)


class _PagesDecorator:
    def __init__(self, operation: Operation, page: str) -> None:
        self._operation, self._page = operation, page

    def __call__(self, function: Callable[Concatenate[Any, P], T]) -> Pages[P, T]:
        return Pages(function, self._operation, self._page)


def operation(name: str, **options: Any) -> _VerbDecorator:
    """Declare a verb of the operation with this name; `options` are those of Operation."""
    return _VerbDecorator(Operation(name, **options))


def pages(name: str, page: str, **options: Any) -> _PagesDecorator:
    """Declare a list. `page` is the page's type and its member with the items, as in
    `EventPage.events`."""
    return _PagesDecorator(Operation(name, **options), page)
