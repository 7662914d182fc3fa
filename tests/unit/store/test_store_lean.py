"""A process of ours imports the driver without numpy, and a program that wants numpy has it."""

from __future__ import annotations

import subprocess
import sys

LEAN = "import sys; from headgate.store.cassandra.without_numpy import leave_numpy_out; "


def _reported(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", LEAN + program], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_the_driver_is_imported_without_numpy_and_numpy_can_be_imported_after_it() -> None:
    program = (
        "leave_numpy_out(); import cassandra.cluster; print('numpy' in sys.modules); import numpy; print(numpy.pi)"
    )
    assert "False\n3.141592653589793\n" == _reported(program)


def test_a_process_that_has_imported_numpy_before_keeps_it_and_the_driver_knows() -> None:
    program = "import numpy; leave_numpy_out(); import cassandra.cython_deps as deps; print(deps.HAVE_NUMPY)"
    assert "True\n" == _reported(program)


def test_the_operator_opens_its_sessions_without_numpy() -> None:
    program = (
        "import asyncio, headgate_operator.process.main as process\n"
        "from headgate.errors import EnvironmentProblem\n"
        "from headgate.store.cassandra.settings import read_settings\n"
        "try:\n"
        "    asyncio.run(process.open_session(read_settings({'CONTACT_POINTS': '127.0.0.1:1'})))\n"
        "except EnvironmentProblem:\n"
        "    print('refused', 'cassandra.cluster' in sys.modules, 'numpy' in sys.modules)\n"
    )
    assert "refused True False\n" == _reported(program)
