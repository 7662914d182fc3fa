"""The entrypoint of the image headgate-spark: runs a driver, an executor, or the given command.

Spark on Kubernetes starts its pods with `driver ...` or `executor ...` and passes the rest in the environment, as its
own images read it; PySpark from a package registry has no such entrypoint. This module knows neither jobs nor queues,
and imports no Spark: it replaces itself by the chosen program.

A container may run as any user id. The JVM looks up the id's name and fails without one. Where there is none, a
library provides one (nss_wrapper), read from files in the temporary directory.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.command_line.exit_codes import exit_code_of
from headgate.errors import HeadgateError, InvalidRequest

EXECUTOR: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
JAVA_OPTION: Final = "SPARK_JAVA_OPT_"
NAME: Final = "headgate"
NAMES_LIBRARY: Final = "libnss_wrapper.so"
LIBRARIES: Final = "/usr/lib"

# The names of an executor's own options, and the variables that contain them.
_EXECUTOR_OPTIONS: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


@dataclass(frozen=True)
class Names:
    """The files by which a number has a name, as nss_wrapper reads them."""

    passwd: str
    group: str


def build_command(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    match list(words):
        case ["driver", *rest]:
            return _driver(rest, environment)
        case ["executor", *_]:
            return _executor(environment)
        case []:
            raise InvalidRequest(
                "No program to run", remedy="pass driver, executor, or a command such as spark-submit"
            )
        case command:
            return command


def _driver(rest: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    address = _required(environment, "SPARK_DRIVER_BIND_ADDRESS")
    return [
        f"{_required(environment, 'SPARK_HOME')}/bin/spark-submit",
        *("--conf", f"spark.driver.bindAddress={address}"),
        *("--conf", f"spark.executorEnv.SPARK_DRIVER_POD_IP={address}"),
        *("--deploy-mode", "client"),
        *rest,
    ]


def _executor(environment: Mapping[str, str]) -> list[str]:
    memory = _required(environment, "SPARK_EXECUTOR_MEMORY")
    return [
        f"{_required(environment, 'JAVA_HOME')}/bin/java",
        *java_options(environment),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        *("-cp", class_path(environment)),
        EXECUTOR,
        *(word for option, name in _EXECUTOR_OPTIONS.items() for word in (option, _required(environment, name))),
    ]


def java_options(environment: Mapping[str, str]) -> list[str]:
    """SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1 and so on, in the order of their numbers."""
    numbered = [
        (int(number), value)
        for name, value in environment.items()
        if name.startswith(JAVA_OPTION) and (number := name.removeprefix(JAVA_OPTION)).isdigit()
    ]
    return [value for _, value in sorted(numbered)]


def class_path(environment: Mapping[str, str]) -> str:
    """Configurations first, so that they win; then Spark's jars and added ones."""
    home = _required(environment, "SPARK_HOME")
    parts = [
        environment.get("HADOOP_CONF_DIR", ""),
        environment.get("SPARK_CONF_DIR", f"{home}/conf"),
        environment.get("SPARK_CLASSPATH", ""),
        f"{home}/jars/*",
        environment.get("SPARK_EXTRA_CLASSPATH", ""),
        environment.get("SPARK_DIST_CLASSPATH", ""),
    ]
    return ":".join(part for part in parts if part)


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise InvalidRequest(
            "A variable that Spark sets in its pods is missing",
            remedy="Spark on Kubernetes starts this program; run spark-submit to start a job by hand",
            name=name,
        )
    return value


def build_names(uid: int, gid: int, home: str) -> Names:
    """A name for this user id, in addition to root's."""
    return Names(
        passwd=f"root:x:0:0:root:/root:/bin/sh\n{NAME}:x:{uid}:{gid}:{NAME}:{home}:/bin/sh\n",
        group=f"root:x:0:\n{NAME}:x:{gid}:\n" if gid else "root:x:0:\n",
    )


def with_a_name(environment: Mapping[str, str], directory: Path) -> dict[str, str]:
    """The environment in which this user has a name: unchanged where it has one, or where the library is missing."""
    uid, gid = os.getuid(), os.getgid()
    library = next(iter(sorted(Path(LIBRARIES).glob(f"*/{NAMES_LIBRARY}"))), None)
    if _has_a_name(uid) or library is None:
        return dict(environment)
    names = build_names(uid, gid, environment.get("HOME", "/tmp"))  # noqa: S108 - of the container, which has it to itself
    # Two processes of one container write the same.
    files = {"NSS_WRAPPER_PASSWD": directory / "passwd", "NSS_WRAPPER_GROUP": directory / "group"}
    directory.mkdir(mode=0o700, exist_ok=True)
    for path, text in zip(files.values(), (names.passwd, names.group), strict=True):
        path.write_text(text)
    preloaded = ":".join(part for part in (str(library), environment.get("LD_PRELOAD", "")) if part)
    return {**environment, "LD_PRELOAD": preloaded, **{name: str(path) for name, path in files.items()}}


def _has_a_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def main() -> None:
    try:
        command = build_command(sys.argv[1:], os.environ)
        directory = Path(os.environ.get("TMPDIR", "/tmp")) / f"names-{os.getuid()}"  # noqa: S108 - as above
        os.execvpe(command[0], command, with_a_name(os.environ, directory))  # noqa: S606 - no shell is wanted
    except HeadgateError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(exit_code_of(error))
    except OSError as error:
        sys.stderr.write(f"this container cannot run it: {error.strerror} ({error.filename})\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
