"""Options of the source and sink: what they mean, and one clear line for each mistake."""

from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, MapType, StringType, StructField, StructType

from headgate.store.model.positions import first_at, last_at, position_order
from headgate.store.process_positions import process_positions
from headgate_spark.options import (
    OptionInvalid,
    ReadOptions,
    Subject,
    read_options,
    stream_options,
    write_options,
)
from headgate_spark.schemas import PUT, QUEUE, SchemaUnfit, check_read, check_write, schema_of

EMAILS = Subject("shop/emails", None, ())


def test_a_queue_is_named_by_option_or_by_load() -> None:
    assert ReadOptions(EMAILS) == read_options({"queue": "shop/emails"}) == read_options({"path": "shop/emails"})


def test_the_connection_can_be_reported_beside_the_environment() -> None:
    result = read_options({"queue": "q", "contact_points": "10.0.0.1", "Keyspace": "k"})
    assert (("CONTACT_POINTS", "10.0.0.1"), ("KEYSPACE", "k")) == result.subject.connection


def test_a_range_of_time_begins_with_its_first_time_and_ends_before_its_last() -> None:
    result = read_options({"queue": "q", "from": "1970-01-01T00:00:01+00:00", "to": "1970-01-01T01:00:02+01:00"})
    assert (position_order(first_at(1_000_000)), position_order(last_at(1_999_999))) == (result.first, result.last)


def test_a_range_of_positions_is_given_as_the_column_shows_them() -> None:
    position = first_at(5)
    assert position_order(position) == read_options({"queue": "q", "fromPosition": str(position)}).first


def test_a_position_as_this_project_makes_it_is_one() -> None:
    made = process_positions().at(1_700_000_000_000_000)
    assert position_order(made) == read_options({"queue": "q", "toPosition": str(made)}).last


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, 'either a queue or a counter .*option\\("queue", "shop/emails"\\)'),
        ({"queue": "q", "counter": "c"}, "either a queue or a counter .*given=queue, counter"),
        ({"queue": "q", "stat": "live"}, "Unknown option .*did you mean state"),
        ({"queue": "q", "state": "dead"}, "state must be one of live, history"),
        ({"queue": "q", "messagesPerSplit": "0"}, "messagesPerSplit must be a whole number from 1"),
        ({"queue": "q", "from": "yesterday"}, "from must be a time such as 2026"),
        ({"queue": "q", "from": "2026-01-01T00:00:00"}, "from has no time zone .*add \\+00:00"),
        ({"queue": "q", "fromPosition": "7"}, "fromPosition must be a time uuid"),
        (
            {"queue": "q", "from": "2026-01-01T00:00:00Z", "fromPosition": "7"},
            "two starts, or two ends.*not both",
        ),
    ],
)
def test_a_mistake_in_reading_is_one_line(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionInvalid, match=message) as raised:
        read_options(options)
    assert 1 == len(str(raised.value).splitlines())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"counter": "c"}, "A counter cannot be read as a stream"),
        ({"queue": "q", "maxMessagesPerTrigger": "many"}, "maxMessagesPerTrigger must be a whole number"),
        ({"queue": "q", "visibility": "1s"}, "visibility must be from 30s to 24h"),
        ({"queue": "q", "visibility": "long"}, "visibility must be from 30s to 24h"),
    ],
)
def test_a_mistake_in_streaming_is_one_line(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionInvalid, match=message):
        stream_options(options)


def test_lengths_of_time_have_units() -> None:
    assert [90_000_000, 300_000_000, 3_600_000_000] == [
        stream_options({"queue": "q", "visibility": text}).visibility_us for text in ("90", "5m", "1h")
    ]


def test_messages_are_written_once_unless_reported_otherwise() -> None:
    assert (True, False) == (
        write_options({"queue": "q"}).exactly_once,
        write_options({"queue": "q", "exactlyOnce": "false"}).exactly_once,
    )


def test_columns_that_are_not_there_are_reported() -> None:
    with pytest.raises(SchemaUnfit, match=r"column=payloads.*did you mean payload"):
        check_read(StructType([StructField("payloads", StringType())]), QUEUE)
    with pytest.raises(SchemaUnfit, match=r"another type than its own .*asked=int, has=string"):
        check_read(StructType([StructField("id", IntegerType())]), QUEUE)
    check_read(schema_of(QUEUE), QUEUE)


@pytest.mark.parametrize(
    ("columns", "key_column", "message"),
    [
        ({"text": StringType()}, None, "need a column payload"),
        ({"payload": IntegerType()}, None, "another type .*is_=int, wanted=binary or string"),
        ({"payload": StringType(), "colour": StringType()}, None, "Unknown column to write .*column=colour"),
        ({"payload": StringType()}, "order", "keyColumn must name a string column .*is_=missing"),
    ],
)
def test_rows_that_cannot_be_put_are_reported(
    columns: dict[str, StringType], key_column: str | None, message: str
) -> None:
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])
    with pytest.raises(SchemaUnfit, match=message):
        check_write(schema, PUT, needed="payload", key_column=key_column)


def test_a_map_without_nulls_is_a_map() -> None:
    literal = MapType(StringType(), StringType(), valueContainsNull=False)
    check_write(
        StructType([StructField("payload", StringType()), StructField("attributes", literal)]),
        PUT,
        needed="payload",
        key_column=None,
    )


def test_a_column_of_keys_is_no_part_of_the_message() -> None:
    schema = StructType([StructField("payload", StringType()), StructField("order", StringType())])
    check_write(schema, PUT, needed="payload", key_column="order")
