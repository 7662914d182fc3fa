"""The location of the tables of a queue or a counter. All but the Secret's name is fixed at creation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headgate.api.model import Count, Model
from headgate.api.names import DataCenter, Keyspace, SecretName


class Storage(Model):
    """The location of the tables in Cassandra, and the Secret of the connection."""

    keyspace: Keyspace | None = Field(
        None,
        description="The keyspace of the tables, created if it is missing. Default: the connection's "
        "KEYSPACE (`headgate` by default). Fixed when the resource is created.",
    )
    data_center: DataCenter | None = Field(
        None,
        description="The home data centre. Leases, puts and reads use its replicas only, and a process in "
        "another data centre is refused. Default: the connection's DATA_CENTER. Fixed when the "
        "resource is created.",
    )
    replication: Count | None = Field(
        None,
        ge=1,
        le=9,
        description="The number of replicas in the home data centre, for a keyspace that the operator "
        "creates. Default: 3, or the number of nodes if there are fewer. Below 3, the loss of "
        "one node stops the queue.",
    )
    connection_secret: SecretName | None = Field(
        None,
        description="A Secret of this namespace with the connection to Cassandra (CONTACT_POINTS, "
        "DATA_CENTER, USERNAME, PASSWORD, USE_SSL, KEYSPACE, CLUSTER_NAME, ca.crt, tls.crt, "
        "tls.key). Default: the chart's, which the operator copies into the namespace. May "
        "change to another Secret of the same cluster.",
    )
    tables: Literal["dedicated", "shared"] = Field(
        "dedicated",
        description="`dedicated`: tables of its own, dropped as a whole when it is deleted. `shared`: tables "
        "that all resources of the keyspace share. Choose shared for many resources, since "
        "Cassandra slows down past a few hundred tables. Fixed when the resource is created.",
    )
