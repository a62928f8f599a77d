"""Plans of statements, as Postgres tells them."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest.mock import patch

import psycopg
from psycopg import sql

from strandline.db import connection as db_connection
from strandline.db.database import Database
from tests.connections import connect_anew
from tests.support import APP, ScratchDatabase

_EXPLAIN = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_parameter_max_length": "0",
    "auto_explain.log_format": "json",
    "auto_explain.log_level": "notice",
}


class Explainer:
    """The application role's statements on a database, with the plans that ran."""

    def __init__(self, base: ScratchDatabase) -> None:
        with psycopg.connect(base.admin_url, autocommit=True) as administrator:
            for name, value in _EXPLAIN.items():
                statement = sql.SQL("alter role {} in database {} set {} = {}").format(
                    sql.Identifier(APP),
                    sql.Identifier(base.name),
                    sql.Identifier(*name.split(".")),
                    value,
                )
                administrator.execute(statement)
        self.database = Database(base.url)
        self._said: list[str] = []
        with patch.object(db_connection, "connect", connect_anew):  # one that reads the settings
            self.database.connection()
        self.database.connection().add_notice_handler(
            lambda notice: self._said.append(notice.message_primary or "")
        )

    def plans(self, call: Callable[[], object]) -> list[Mapping[str, Any]]:
        """What ran during a call, nested statements included."""
        self._said.clear()
        call()
        plans = [json.loads(text.partition("plan:")[2]) for text in self._said if "plan:" in text]
        assert plans, "the session tells no plans"
        return plans


def nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The parts of a plan that ran."""
    if plan["Actual Loops"]:
        yield plan
    for part in plan.get("Plans", []):
        yield from nodes(part)


def rows_read(node: Mapping[str, Any]) -> float:
    """Rows of a table that a scan touched."""
    if "Relation Name" not in node:
        return 0
    dropped = ("Rows Removed by Filter", "Rows Removed by Index Recheck")
    return node["Actual Loops"] * (node["Actual Rows"] + sum(node.get(name, 0) for name in dropped))
