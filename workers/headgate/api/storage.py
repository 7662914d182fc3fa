"""Where the tables of a queue or a counter lie. Everything but the Secret's name is fixed when it is made."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headgate.api.model import Count, Model
from headgate.api.names import DataCenter, Keyspace, SecretName


class Storage(Model):
    """Where in Cassandra the tables lie, and with which Secret they are reached."""

    keyspace: Keyspace | None = Field(
        None,
        description="The keyspace of the tables, made if it is missing. Unset: the connection's KEYSPACE "
        "(`headgate` unless that is set too). What was chosen is fixed when the resource is made.",
    )
    data_center: DataCenter | None = Field(
        None,
        description="The home data centre: leases, puts and reads use its replicas only, and a process whose "
        "coordinators are elsewhere is refused. Unset: the connection's DATA_CENTER. Fixed when the resource is "
        "made.",
    )
    replication: Count | None = Field(
        None,
        ge=1,
        le=9,
        description="Replicas in the home data centre, used only where the keyspace is made anew. Unset: 3, or the "
        "number of nodes of the data centre where there are fewer. Below 3, the loss of one node stops the queue.",
    )
    connection_secret: SecretName | None = Field(
        None,
        description="A Secret of this namespace with the connection to Cassandra (CONTACT_POINTS, DATA_CENTER, "
        "USERNAME, PASSWORD, USE_SSL, KEYSPACE, CLUSTER_NAME, ca.crt, tls.crt, tls.key). Unset: the one that the "
        "chart names, which the operator copies here. May be changed, to a Secret of the same cluster.",
    )
    tables: Literal["dedicated", "shared"] = Field(
        "dedicated",
        description="dedicated: tables of its own, dropped whole when it is deleted. shared: tables that all "
        "resources of the keyspace share; choose it where there are many, since Cassandra suffers past a few hundred "
        "tables. Fixed when the resource is made.",
    )
