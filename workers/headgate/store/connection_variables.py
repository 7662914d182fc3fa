"""The environment variable of each connection setting. It knows the names and the standard library.

`HEADGATE_USERNAME` goes before `USERNAME`, and likewise for each name in VARIABLES; an empty variable counts as not
set. Desktops and CI systems export USERNAME, PASSWORD and KEYSPACE for purposes of their own, so these three count
without the prefix only where CONTACT_POINTS is set without it too, as in a pod that takes all keys of a Secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PREFIX: Final = "HEADGATE_"
MEMORY: Final = "memory://"
"""Contact points that begin with this are no servers: queues and counters are in the memory of the process."""
VARIABLES: Final = (
    "CONTACT_POINTS",
    "DATA_CENTER",
    "USERNAME",
    "PASSWORD",
    "USE_SSL",
    "SSL_CA",
    "SSL_CERT",
    "SSL_KEY",
    "SSL_DIRECTORY",
    "KEYSPACE",
    "CLUSTER_NAME",
)
"""The settings of a connection: these are the keys of a Secret, and the names without the prefix."""
OF_OTHERS_TOO: Final = frozenset(("USERNAME", "PASSWORD", "KEYSPACE"))
"""Names that programs with nothing to do with Headgate export."""


def variable_names(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variable that each setting is read from; a setting without one is not in it."""
    is_bare_connection = bool(environment.get("CONTACT_POINTS", "").strip())
    names: dict[str, str] = {}
    for setting in VARIABLES:
        if environment.get(PREFIX + setting, "").strip():
            names[setting] = PREFIX + setting
        elif environment.get(setting, "").strip() and (is_bare_connection or setting not in OF_OTHERS_TOO):
            names[setting] = setting
    return names


def connection_variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {setting: environment[name] for setting, name in variable_names(environment).items()}


def prefixed(settings: Mapping[str, str]) -> dict[str, str]:
    """The same settings as variables that go before all others."""
    return {PREFIX + setting: value for setting, value in settings.items()}
