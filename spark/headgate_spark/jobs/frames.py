"""The messages of a job as DataFrames, and Spark's errors about them, as one line of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from headgate.errors import EnvironmentProblem, HeadgateError, InvalidRequest
from headgate_spark.engines.contract import HistorySplit
from headgate_spark.engines.registry import named_engine
from headgate_spark.jobs.decide_batch import BatchPlan, Reported, shares_of
from headgate_spark.jobs.tasks import (
    OUTCOMES,
    QueueSource,
    condenses,
    load,
    read_history,
    read_picks,
    share_out,
    transform,
)
from headgate_spark.schemas import MESSAGES

TASKS_A_CORE = 2
LINE_CHARACTERS_MAX = 400


class PredicateWrong(InvalidRequest):
    """The predicate of `where` cannot be used."""


class PredicateFailed(EnvironmentProblem):
    """The predicate of `where` could not be worked out; its batch stays in the queue."""


class HandlerWrong(InvalidRequest):
    """The handler's result does not fit a bulk job."""


class HandlerFailed(EnvironmentProblem):
    """The handler failed; its batch stays in the queue."""


class SinkFailed(EnvironmentProblem):
    """The output could not be written; its batch stays in the queue."""


class SparkFailed(EnvironmentProblem):
    """Spark failed; unsettled messages stay in the queue."""


class SparkNotStarted(EnvironmentProblem):
    """Spark cannot be started."""


class Frames:
    """The DataFrames of one queue."""

    def __init__(self, spark: SparkSession, source: QueueSource) -> None:
        self.spark = spark
        self._source = source
        self.tasks = max(1, spark.sparkContext.defaultParallelism * TASKS_A_CORE)

    def empty(self) -> DataFrame:
        return self.spark.createDataFrame([], from_arrow_schema(MESSAGES))

    def picks(self, plan: BatchPlan) -> DataFrame:
        """The messages of a batch; every read of them returns the same."""
        return self._shared_out(shares_of(plan, self.tasks), read_picks)

    def history(self, splits: Sequence[HistorySplit]) -> DataFrame:
        count = min(len(splits), self.tasks * 4)
        return self._shared_out([splits[number::count] for number in range(count)], read_history)

    def _shared_out(self, shares: Sequence[Any], read: Callable[..., Any]) -> DataFrame:
        source = self._source
        return share_out(self.spark, source.environment, shares, partial(read, source.queue), MESSAGES)

    def where(self, predicate: str | None) -> Callable[[DataFrame], DataFrame]:
        """A filter that was tried on nothing before it is relied on."""
        if predicate is None:
            return lambda messages: messages
        try:
            self.empty().where(predicate).schema  # noqa: B018 - Spark reads it now
        except PySparkException as error:
            raise PredicateWrong(where=predicate, why=first_line(error)) from None
        return lambda messages: messages.where(predicate)

    def handler(self, entry_point: str, columns: Sequence[str]) -> Callable[[DataFrame], DataFrame]:
        """The user's function, tried on an empty frame, so that wrong columns are found before anything is taken."""
        function = load(entry_point)
        try:
            given = function(self.empty())
        except PySparkException as error:
            raise HandlerWrong(handler=entry_point, why=first_line(error)) from None
        except Exception as error:
            raise HandlerWrong(handler=entry_point, why=f"{type(error).__name__}: {error}") from None
        if not isinstance(given, DataFrame):
            raise HandlerWrong(handler=entry_point, gives=type(given).__name__, remedy="return a DataFrame")
        missing = [name for name in columns if name not in given.columns]
        if missing:
            raise HandlerWrong(
                handler=entry_point,
                gives=", ".join(given.columns) or "no columns",
                remedy=f"return a DataFrame with {', '.join(columns)}",
            )
        return function

    def reported(self, outcomes: DataFrame) -> list[Reported]:
        """Outcomes, condensed on the executors."""
        reason = f.col("reason").cast("string") if "reason" in outcomes.columns else f.lit("")
        plain = outcomes.select(
            f.col("id").cast("string").alias("id"),
            f.col("outcome").cast("string").alias("outcome"),
            reason.alias("reason"),
        )
        rows = transform(plain, condenses(self._source.engine), OUTCOMES).collect()
        return [
            Reported(bytes(row["row"]), row["outcome"], int.from_bytes(row["mask"], "little"), row["reason"] or "")
            for row in rows
        ]

    def reasons(self, reasons: dict[bytes, str]) -> DataFrame:
        ids = named_engine(self._source.engine).ids
        rows = [(ids.text_of(id_), reason) for id_, reason in reasons.items()]
        return self.spark.createDataFrame(rows, "id string, reason string")


@contextmanager
def spark_errors_as(error_type: type[HeadgateError], **facts: Any) -> Iterator[None]:
    """Spark's errors, as one line of ours. An error of ours that a task raised is reported by its own line."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise error_type(why=first_line(error), **facts) from None


def first_line(error: BaseException) -> str:
    """The line with the error: of a task's traceback the last one, else the first."""
    text = str(error)
    if isinstance(error, Py4JJavaError):
        text = str(error.java_exception.toString())
        cause = error.java_exception.getCause()
        while cause is not None:
            text, cause = str(cause.toString()), cause.getCause()
    if isinstance(error, AnalysisException):
        return text.strip().splitlines()[0][:LINE_CHARACTERS_MAX]
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    raised = [line for line in lines if _is_raised(line)]
    return (raised[-1] if raised else lines[0] if lines else type(error).__name__)[:LINE_CHARACTERS_MAX]


def _is_raised(line: str) -> bool:
    """Whether this line of a Python traceback contains the error: `package.Name: message`."""
    name, colon, _ = line.partition(": ")
    last = name.rpartition(".")[2]
    return bool(colon) and last.isidentifier() and last[:1].isupper() and "Exception in" not in line
