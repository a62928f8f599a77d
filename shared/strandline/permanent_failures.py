"""Recognises failures that the same input would cause again, so that a retry would not help."""

import psycopg

from strandline.errors import Interrupted, StrandlineError

_LIMIT_EXCEEDED_CLASS = "54"
"""The SQLSTATE class for exceeding a limit of Postgres (PostgreSQL manual, appendix A)."""
_NO_THREAD_MESSAGE = "can't start new thread"
"""The text of CPython's RuntimeError when the system cannot start a thread: a shortage that has no
type of its own."""
_ONNX_MODULE = "onnxruntime"
"""onnxruntime raises the same exceptions for a shortage of memory and for other faults. They are
recognised by the name of their module, so that it need not be imported."""


def is_permanent_failure(error: Exception) -> bool:
    """Whether the same input fails the same way again: a parser, a model's rules or a limit refused
    it.

    False for a failure that may pass by itself: a dependency that is down or late, a shortage of
    resources, a conflict with others. False also for a StrandlineError, whose class says whether it
    is retryable.
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
