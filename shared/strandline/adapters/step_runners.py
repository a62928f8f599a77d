"""Procedures of several requests, written once and carried out by either client. A procedure here
is told of an error where it yielded the request, and may catch it."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from strandline.client.errors import GoneError
from strandline.client.request_building import Call
from strandline.client.verb_declarations import Steps

if TYPE_CHECKING:
    from strandline.client.clients import AsyncStrandline, Strandline


class _Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


T = TypeVar("T")
Page = TypeVar("Page", bound=_Page)

_READINGS = 20


def ask(call: Call[T]) -> Steps[T]:
    """One request of a procedure: `answer = yield from ask(call)`. Raises ServiceError."""
    return (yield call)


def read_items(
    make_call: Callable[..., Call[Page]],
    take_items: Callable[[Page], Iterable[T]],
    most: int | None = None,
) -> Steps[list[T]]:
    """What `take_items` takes from the pages of a list, to its end or until it is `most`.
    `make_call` makes the request of a page from its `cursor`. A list of which another program
    erases something is read again from its beginning; raises GoneError where that happens 20
    times."""
    readings = 0
    while True:
        items: list[T] = []
        cursor: str | None = None
        try:
            while most is None or len(items) < most:
                page = yield from ask(make_call(cursor=cursor))
                items += take_items(page)
                cursor = page.next_cursor
                if cursor is None:
                    break
            return items[:most]
        except GoneError:
            readings += 1
            if cursor is None or readings == _READINGS:
                raise


def run_steps(client: Strandline, steps: Steps[T]) -> T:
    """The result of a procedure, by a blocking client. Raises what the procedure does not catch."""

    async def perform(call: Call[Any]) -> Any:
        return client.perform(call)

    running = _run(perform, steps)
    try:
        running.send(None)  # nothing in it waits, so that it runs to its end
    except StopIteration as end:
        return end.value
    raise RuntimeError("a blocking client does not suspend a procedure")


async def run_steps_async(client: AsyncStrandline, steps: Steps[T]) -> T:
    """The result of a procedure, by an asynchronous client. Raises what the procedure does not
    catch."""
    return await _run(client.perform, steps)


async def _run(perform: Callable[[Call[Any]], Awaitable[Any]], steps: Steps[T]) -> T:
    with contextlib.closing(steps):
        try:
            step = next(steps)
            while True:
                try:
                    answer = await perform(_require_call(step))
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            return end.value


def _require_call(step: object) -> Call[Any]:
    """Procedures here neither pause nor block."""
    if not isinstance(step, Call):
        raise TypeError(f"a procedure of an adapter yields requests alone, not {step!r}")
    return cast("Call[Any]", step)
