"""Send several statements to the database and read their results in one round trip.

The driver's own pipeline ends with Sync and then Flush. The server starts its idle-session timer
when it answers the Sync; the Flush stops that timer and does not start it again, so the session
would last for ever and Aurora could never pause. Here the Sync is the last message.
"""

import dataclasses
import functools
import operator
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString, cast

import psycopg
from psycopg import errors, generators
from psycopg.abc import AdaptContext
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import DiagnosticField, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult

from strandline.db.nearest_moments import NearestMomentContext
from strandline.db.prepared_statements import EncodedStatement, get_prepared_statements
from strandline.errors import Unavailable

type Statement = tuple[LiteralString, Mapping[str, object]]
"""A statement with placeholders `%(name)s`, and the values by name."""


@dataclass(frozen=True)
class RowQuery[Row]:
    """A statement, its parameters, and the type of its rows."""

    row_type: type[Row]
    statement: LiteralString
    params: Mapping[str, object]


def run_pipeline(connection: psycopg.Connection[Any], *statements: Statement) -> list[PGresult]:
    """Run statements together, up to one Sync, and return their results in order. Outside of a
    transaction they are one transaction, which any error rolls back. Values are adapted as by the
    driver, and errors are the driver's. A connection whose Sync was not answered is closed. Raises
    Unavailable if a migration changed the columns of a prepared statement in a transaction."""
    return _retry_after_migration(connection, lambda: _run_pipeline_once(connection, statements))


def call_by_libpq(
    connection: psycopg.Connection[Any],
    statement: bytes,
    values: Sequence[bytes],
    *,
    is_prepared: bool,
) -> PGresult:
    """Run one statement with values in Postgres' text format, without the driver's adaptation and
    without a pipeline; prepared if it is known well enough, or never. Raises the driver's errors,
    and Unavailable as `run_pipeline`."""
    query = EncodedStatement(statement, values, None, None)

    def call_once() -> PGresult:
        if is_prepared:
            result = get_prepared_statements(connection).execute(connection.pgconn, query)
        else:
            result = connection.pgconn.exec_params(statement, values)
        if result.status != ExecStatus.TUPLES_OK:
            raise _make_error(connection, result)
        return result

    return _retry_after_migration(connection, call_once) if is_prepared else call_once()


def _make_error(connection: psycopg.Connection[Any], result: PGresult) -> psycopg.Error:
    """The driver's error for a result. One without an SQLSTATE is libpq's own: it could not send or
    receive, and may take the connection for open; then that is closed."""
    if connection.closed or result.error_field(DiagnosticField.SQLSTATE) is None:
        connection.close()
        return psycopg.OperationalError("the connection was lost")
    return errors.error_from_result(result)


def _retry_after_migration[Result](
    connection: psycopg.Connection[Any], run: Callable[[], Result]
) -> Result:
    """Run statements; once more where a migration changed the columns of a prepared one, or it is
    gone. What failed so is rolled back whole, so that nothing is written twice. Raises Unavailable
    where that would be in the middle of a transaction."""
    is_whole_transaction = connection.pgconn.transaction_status == TransactionStatus.IDLE
    try:
        return run()
    except (errors.FeatureNotSupported, errors.InvalidSqlStatementName) as error:
        if not get_prepared_statements(connection).forget():
            raise
        if not is_whole_transaction:
            raise Unavailable("The database was migrated just now. Try again.") from error
    if connection.pgconn.transaction_status != TransactionStatus.IDLE:
        connection.rollback()
    return run()


def _run_pipeline_once(
    connection: psycopg.Connection[Any], statements: Sequence[Statement]
) -> list[PGresult]:
    queries = [_encode_statement(connection, statement, params) for statement, params in statements]
    prepared, pgconn = get_prepared_statements(connection), connection.pgconn
    try:
        pgconn.enter_pipeline_mode()
        sent = [message for query in queries for message in prepared.send(pgconn, query)]
        pgconn.pipeline_sync()
        results = connection.wait(_receive_results(pgconn))
        if is_complete := bool(results) and results[-1].status == ExecStatus.PIPELINE_SYNC:
            pgconn.exit_pipeline_mode()
    except BaseException:
        connection.close()
        raise
    if not is_complete:
        connection.close()
    statement_results = prepared.take_results(sent, results)
    for result in results:
        if result.status == ExecStatus.FATAL_ERROR:
            raise _make_error(connection, result)
    if not is_complete:
        raise psycopg.OperationalError("the connection was lost")
    return statement_results


def parse_rows[Row](
    connection: psycopg.Connection[Any], row_type: type[Row], result: PGresult
) -> list[Row]:
    """The rows of a result as `row_type`. A dataclass has its fields from the columns of their
    names, and other columns are left out: a view of a newer schema may have more. A time that
    Python cannot hold is a NearestMoment. Raises TypeError if a column is missing."""
    names = tuple((result.fname(column) or b"").decode() for column in range(result.nfields))
    factory = _row_factory(row_type, names)
    try:
        return _load_rows(connection, result, factory)
    except psycopg.DataError:  # a time that Python cannot hold: the rest must be read all the same
        return _load_rows(NearestMomentContext(connection), result, factory)


def _load_rows[Row](
    context: AdaptContext, result: PGresult, factory: Callable[[Sequence[Any]], Row]
) -> list[Row]:
    transformer = Transformer(context)
    transformer.set_pgresult(result)
    return transformer.load_rows(0, result.ntuples, factory)


@functools.lru_cache(maxsize=1024)
def _row_factory[Row](
    row_type: type[Row], names: tuple[str, ...]
) -> Callable[[Sequence[Any]], Row]:
    """Makes a row of the values of these columns. A dataclass takes them by position: by name it
    costs eight times as much."""
    make = cast("Callable[..., Row]", row_type)
    if not dataclasses.is_dataclass(row_type):
        return lambda values: make(**dict(zip(names, values, strict=True)))
    fields = [field.name for field in dataclasses.fields(row_type)]
    columns = [name for name in fields if name in names]
    if columns != fields[: len(columns)]:  # a last field may have a default instead
        missing = ", ".join(name for name in fields if name not in names)
        raise TypeError(f"{row_type.__name__}: no column {missing}")
    if len(columns) == 1:
        (position,) = map(names.index, columns)
        return lambda values: make(values[position])
    select = operator.itemgetter(*map(names.index, columns))
    return lambda values: make(*select(values))


def _encode_statement(
    connection: psycopg.Connection[Any], statement: str, params: Mapping[str, object]
) -> EncodedStatement:
    """A statement in libpq's form."""
    text, names = _number_params(statement)
    transformer = Transformer(connection)
    values = transformer.dump_sequence(
        [params[name] for name in names], [PyFormat.AUTO] * len(names)
    )
    return EncodedStatement(text, values, transformer.types, transformer.formats)


@functools.lru_cache(maxsize=1024)
def _number_params(statement: str) -> tuple[bytes, tuple[str, ...]]:
    """The statement with `$1`, `$2` … instead of names, and the names in that order."""
    positions: dict[str, int] = {}

    def replace_name(match: re.Match[str]) -> str:
        name = match[1]
        return "%" if name is None else f"${positions.setdefault(name, len(positions) + 1)}"

    text = re.sub(r"%(?:%|\((\w+)\)s)", replace_name, statement)
    return text.encode(), tuple(positions)


def _receive_results(pgconn: PGconn) -> Generator[Any, Any, list[PGresult]]:
    """Receive results up to the answer to the Sync, or until the connection ends."""
    yield from generators.send(pgconn)
    all_results: list[PGresult] = []
    while results := (yield from generators.fetch_many(pgconn)):
        all_results += results
        if results[-1].status == ExecStatus.PIPELINE_SYNC:
            break
    return all_results
