"""Which failures come again from the same input, so that trying again would not help."""

import psycopg

from strandline.errors import Interrupted, StrandlineError

_LIMIT_EXCEEDED_CLASS = "54"
"""The SQLSTATE class of what is over one of Postgres's limits (PostgreSQL manual, appendix A)."""
_NO_THREAD_MESSAGE = "can't start new thread"
"""How CPython's RuntimeError begins when the system gives no thread: a shortage without a type."""
_ONNX_MODULE = "onnxruntime"
"""Its errors are the same for a shortage of memory and for a fault. Not imported to know them."""


def is_permanent_failure(error: Exception) -> bool:
    """Whether the same input fails the same way again: a parser, a model's rules or a limit gave up
    on it. False for whatever time may mend: something away, late, short of resources or in
    conflict with others, and for errors raised on purpose, which say themselves whether to retry.
    """
    if isinstance(error, StrandlineError | Interrupted | OSError | MemoryError):
        return False
    if type(error).__module__.partition(".")[0] == _ONNX_MODULE:
        return False
    if isinstance(error, RuntimeError) and str(error).startswith(_NO_THREAD_MESSAGE):
        return False
    if isinstance(error, psycopg.Error):
        state = error.sqlstate or ""
        is_data_error = isinstance(error, psycopg.DataError | psycopg.errors.CheckViolation)
        return is_data_error or state.startswith(_LIMIT_EXCEEDED_CLASS)
    return True
