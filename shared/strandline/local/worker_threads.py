"""The threads that run handlers. A request that waits leaves its place to another one."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Semaphore
from typing import Any

from strandline.local.lambda_context import Event, Handler
from strandline.tenants import waits


class WorkerThreads(ThreadPoolExecutor):
    """Threads for `workers` handlers at work, and for `waiting` more that sleep. More threads than
    that cannot be asleep: the limits of waits see to it."""

    def __init__(self, workers: int, waiting: int) -> None:
        super().__init__(workers + waiting, thread_name_prefix="lambda")
        self._places = Semaphore(workers)

    def run(self, handler: Handler, event: Event, context: Any) -> Any:
        """Call a handler in this thread, once a place is free. Raises what the handler raises."""
        with self._places:
            waits.leave_worker.set(self._leave_place)
            return handler(event, context)

    @contextmanager
    def _leave_place(self) -> Generator[None]:
        self._places.release()
        try:
            yield
        finally:
            self._places.acquire()
