"""Bulk jobs as programs of their own, with the output of the driver, its JVM and the executors kept in files."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.spark_home import spark_home_in
from tests.system.spark.java import SHORT_LIVED

RUN_WITHIN_S = 240.0
EXECUTOR = "CoarseGrainedExecutorBackend"
SETTINGS = (
    "--conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1 --conf spark.sql.shuffle.partitions=2"
    f" --driver-java-options '{SHORT_LIVED}' --conf 'spark.executor.extraJavaOptions={SHORT_LIVED}'"
)
OUTPUT_MAX = 6_000


@dataclass
class Job:
    """One run of a job's program, in a group of processes of its own."""

    process: subprocess.Popen[bytes]
    log: Path
    """The output of the driver and its JVM. The executors' output is beside it."""

    def output(self) -> str:
        """All of it that is worth reporting."""
        executors = sorted(self.log.parent.glob("spark/work/*/*/std*"))
        files = [self.log, *(file for file in executors if file.stat().st_size)]
        return "\n".join(f"--- {file}\n{file.read_text(errors='replace')[-OUTPUT_MAX:]}" for file in files)

    def works_for(self, seconds: float) -> bool:
        """Whether it still works after this time; one that has ended by itself has ended well."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        assert 0 == code, f"it ended with {code}\n{self.output()}"
        return False

    def run_to_its_end(self, within_s: float = RUN_WITHIN_S) -> None:
        """It ends well, and in time."""
        if self.works_for(within_s):
            self.process.send_signal(signal.SIGABRT)  # it prints the place of each of its threads
            self.process.wait()
            raise AssertionError(f"it did not end\n{self.output()}")

    def kill(self) -> None:
        """All of it: the driver, its JVM, and their children."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_an_executor(self, rng: random.Random) -> None:
        """One of the executors' JVMs, if there is one by now."""
        matches = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                is_ours = os.getpgid(int(folder.name)) == self.process.pid
                if is_ours and EXECUTOR.encode() in (folder / "cmdline").read_bytes():
                    matches.append(int(folder.name))
            except (OSError, ProcessLookupError):
                continue
        if matches:
            os.kill(rng.choice(sorted(matches)), signal.SIGKILL)


@contextmanager
def begun(environment: Mapping[str, str], arguments: list[str], master: str, folder: Path) -> Iterator[Job]:
    """A job as a program of its own; killed in the end, if it is at work still."""
    program = [sys.executable, "-m", "headgate_spark.bulk_program", *arguments, "--master", master]
    surroundings = {**os.environ, **environment, "PYSPARK_SUBMIT_ARGS": f"{SETTINGS} pyspark-shell"}
    surroundings |= {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONFAULTHANDLER": "1",
        "SPARK_HOME": str(spark_home_in(folder)),
    }
    log = folder / "log"
    with log.open("ab") as out:
        process = subprocess.Popen(program, env=surroundings, stdout=out, stderr=out, start_new_session=True)
    job = Job(process, log)
    try:
        yield job
    finally:
        if process.poll() is None:
            job.kill()
