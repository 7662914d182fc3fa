"""Handlers of bulk jobs in tests: what users would write."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f


def all_done(messages: DataFrame) -> DataFrame:
    """Everything succeeds."""
    return messages.select("id", f.lit("done").alias("outcome"), f.lit("").alias("reason"))


def by_number(messages: DataFrame) -> DataFrame:
    """Of five one is dead, one is to come again, one is not spoken of, two are done."""
    number = f.col("payload").cast("string").cast("int") % 5
    outcome = f.when(number == 0, "dead").when(number == 1, "return").otherwise("done")
    message = messages.where(number != 2).select(
        "id", outcome.alias("outcome"), f.lit("invalid address").alias("reason")
    )
    return message.repartition(3)


def wrong_columns(messages: DataFrame) -> DataFrame:
    """No outcome."""
    return messages.select("id", "payload")


def wrong_outcome(messages: DataFrame) -> DataFrame:
    """An outcome that is none."""
    return messages.select("id", f.lit("fine").alias("outcome"))


def strangers(messages: DataFrame) -> DataFrame:
    """Ids that were never given out."""
    other = f.concat(f.lit("aaaa"), f.substring("id", 5, 100))
    return messages.select(other.alias("id"), f.lit("done").alias("outcome"))


@f.udf("string")
def _breaks(payload: bytes) -> str:
    raise ValueError(f"cannot send {payload.decode()}")


def breaks(messages: DataFrame) -> DataFrame:
    """Raises on an executor."""
    return messages.select("id", _breaks("payload").alias("outcome"))


def upper(messages: DataFrame) -> DataFrame:
    """A transform of replays."""
    return messages.withColumn("payload", f.concat(f.lit("again "), f.col("payload").cast("string")).cast("binary"))
