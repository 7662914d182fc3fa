"""CPU seconds and load, from texts as the kernel writes them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bench.cpu import TICKS_PER_S, ProcessTicks, grown_by, parse_stat, read_cpu_s, ticks_by_root
from bench.machine import (
    MachineCpu,
    describe,
    parse_cpu_model,
    parse_load_average,
    parse_machine_stat,
    read_machine_cpu,
)
from headgate.errors import Unavailable

STAT = (
    "4242 (java (main) x) S 17 4242 4242 0 -1 1077936384 88041 900 12 0 1234 66 30 4 20 0 57 0 8817 4611686018 "
    "200000 18446744073709551615 1 1 0 0 0 0 4096 0 16800975 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
)
MACHINE_STAT = """\
cpu  15322 62176 21364 131173 663 10 222 152 7 0
cpu0 4889 31240 9910 69291 90 0 34 71 0 0
intr 17 0 1
"""


def test_a_process_is_read_though_its_name_holds_brackets_and_spaces() -> None:
    assert parse_stat(STAT) == ProcessTicks(pid=4242, parent=17, own=1300, waited_for=34)


def test_the_time_of_children_counts_whether_they_live_or_were_waited_for() -> None:
    tree = [
        ProcessTicks(10, 1, own=5, waited_for=2),
        ProcessTicks(11, 10, own=7, waited_for=0),
        ProcessTicks(12, 11, own=1, waited_for=1),
        ProcessTicks(20, 1, own=100, waited_for=0),
    ]
    assert ticks_by_root(tree, [10, 20]) == {10: 16, 20: 100}


def test_a_measured_process_that_has_ended_is_reported() -> None:
    with pytest.raises(Unavailable, match="ended"):
        ticks_by_root([ProcessTicks(10, 1, 5, 2)], [11])


def test_what_was_used_is_the_difference_of_two_readings() -> None:
    assert grown_by({1: 2.0, 2: 5.0}, {1: 3.5, 2: 5.0}) == {1: 1.5, 2: 0.0}


def test_a_child_that_works_counts_for_its_parent() -> None:
    before = read_cpu_s([os.getpid()])
    code = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    used = grown_by(before, read_cpu_s([os.getpid()]))[os.getpid()]
    assert 0.2 - 2 / TICKS_PER_S <= used


def test_the_machine_is_busy_with_all_but_idling_and_waiting() -> None:
    busy = 15322 + 62176 + 21364 + 10 + 222
    assert parse_machine_stat(MACHINE_STAT) == MachineCpu(busy / TICKS_PER_S, 152 / TICKS_PER_S)


def test_the_whole_machine_uses_at_least_what_we_do() -> None:
    assert read_machine_cpu().busy_s > 0


def test_a_load_average_is_that_of_the_last_minute() -> None:
    assert parse_load_average("2.90 2.34 1.33 4/110 27392\n") == 2.90


def test_a_processor_is_given_by_its_model() -> None:
    assert parse_cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 2.60GHz\n") == "Some CPU @ 2.60GHz"
    assert parse_cpu_model("Features : fp asimd\n") != ""


def test_a_machine_is_described_without_its_name() -> None:
    report = describe()
    assert set(report) == {"cores", "memory_gb", "processor", "system", "python"}
    assert os.uname().nodename not in str(report).split()
