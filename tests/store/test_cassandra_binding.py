"""Rows as bytes: the same that the driver itself would send, for any values."""

from __future__ import annotations

import types
import uuid
from typing import Any

import pytest
from cassandra import cqltypes
from cassandra.query import BatchStatement, BoundStatement, PreparedStatement
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.store._cassandra_binding import Binding

PROTOCOL = 5
CELL = cqltypes.TupleType.apply_parameters([cqltypes.UTF8Type, cqltypes.LongType])
USERS = cqltypes.ListType.apply_parameters([cqltypes.UTF8Type])
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
# No surrogates: UTF-8 can't encode them.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
COLUMNS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "topic": (cqltypes.UTF8Type, TEXT),
    "day": (cqltypes.Int32Type, INT32),
    "id": (cqltypes.UUIDType, st.uuids()),
    "seq": (cqltypes.LongType, INT64),
    "shard": (cqltypes.ByteType, st.integers(-128, 127)),
    "body": (cqltypes.BytesType, st.binary(max_size=20)),
    "cell": (CELL, st.tuples(TEXT, INT64)),
    "users": (USERS, st.lists(TEXT, max_size=3)),
}
ROWS = st.tuples(*(strategy for _, strategy in COLUMNS.values()))
ROW = ("news.breaking", 20_000, uuid.UUID(int=7), 2**40, 3, b"{}", ("router", 1), ["42"])


def prepared() -> PreparedStatement:
    columns = [
        types.SimpleNamespace(keyspace_name="k", table_name="t", name=name, type=kind)
        for name, (kind, _) in COLUMNS.items()
    ]
    return PreparedStatement(
        column_metadata=columns,
        query_id=b"id",
        routing_key_indexes=[0, 1],
        query="INSERT",
        keyspace="k",
        protocol_version=PROTOCOL,
        result_metadata=None,
        result_metadata_id=None,
    )


@given(ROWS)
def test_a_row_is_bound_as_the_driver_binds_it(row: tuple[Any, ...]) -> None:
    statement = prepared()
    ours, theirs = Binding(statement).one(row), statement.bind(row)
    assert (ours.values, ours.routing_key) == (theirs.values, theirs.routing_key)


@given(st.lists(ROWS, min_size=2, max_size=4))
def test_rows_of_a_partition_are_one_batch(rows: list[tuple[Any, ...]]) -> None:
    statement = prepared()
    request = Binding(statement).many(rows)
    assert isinstance(request, BatchStatement)
    assert [values for _, _, values in request._statements_and_parameters] == [
        statement.bind(row).values for row in rows
    ]
    assert request.routing_key == statement.bind(rows[0]).routing_key
    assert request.is_idempotent


def test_one_row_is_no_batch() -> None:
    request = Binding(prepared()).many([ROW])
    assert isinstance(request, BoundStatement)


@pytest.mark.parametrize(
    ("column", "value"),
    [(0, b"bytes"), (1, 2**31), (1, "1"), (2, "no uuid"), (3, 2**63), (3, None), (6, ("a", "b"))],
)
def test_a_value_of_another_type_is_refused(column: int, value: object) -> None:
    row = (*ROW[:column], value, *ROW[column + 1 :])
    with pytest.raises(TypeError):
        Binding(prepared()).one(row)


def test_a_row_with_too_few_values_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Binding(prepared()).one(ROW[:-1])
