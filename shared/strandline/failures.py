"""Which failures come again from the same input, so that trying again would not help."""

import psycopg

from strandline.errors import Interrupted, StrandlineError

_LIMIT_EXCEEDED = "54"
"""The SQLSTATE class of what is over one of Postgres's limits (PostgreSQL manual, appendix A)."""
_NO_THREAD = "can't start new thread"
"""How CPython's RuntimeError begins when the system gives no thread: a shortage without a type."""
_RUNTIME = "onnxruntime"
"""Its errors are the same for a shortage of memory and for a fault. Not imported to know them."""


def recurs(error: Exception) -> bool:
    """Whether the same input fails the same way again: a parser, a model's rules or a limit gave up
    on it. False for whatever time may mend: something away, late, short of resources or in
    conflict with others, and for errors raised on purpose, which say themselves whether to retry.
    """
    if isinstance(error, StrandlineError | Interrupted | OSError | MemoryError):
        return False
    if type(error).__module__.partition(".")[0] == _RUNTIME:
        return False
    if isinstance(error, RuntimeError) and str(error).startswith(_NO_THREAD):
        return False
    if isinstance(error, psycopg.Error):
        state = error.sqlstate or ""
        data = isinstance(error, psycopg.DataError | psycopg.errors.CheckViolation)
        return data or state.startswith(_LIMIT_EXCEEDED)
    return True
