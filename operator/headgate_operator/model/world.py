"""The operator's knowledge at a decision: frozen values, built by `observe`, read by `decide`. No I/O, no decisions.

State that was not read, or could not be, is `UNKNOWN`, never empty: unknown state changes nothing. Documents of the
cluster stand here as plain JSON, as the API server gave them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal

from headgate.api.read.parse import Resource
from headgate.api.resources.queues import QueueResource
from headgate.api.resources.reasons import Reason
from headgate.api.rules.rules import Fault
from headgate.applying.desired_state import PlacementDefaults
from headgate.engines.registry import engine_of
from headgate.engines.summary.decide_marks import LaterMark
from headgate.store.catalogue.entry import Entry
from headgate.store.model.drift import Drift
from headgate_operator.model.kinds import Document
from headgate_operator.model.label_selector import EVERYTHING, LabelSelector
from headgate_operator.model.names import CONNECTION_COPY, Key


class Nothing(Enum):
    """Stands where something was not read."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Nothing.UNKNOWN
Unread = Literal[Nothing.UNKNOWN]


@dataclass(frozen=True, order=True)
class ChildName:
    """A child within its namespace. `kind` is Kubernetes' word: Deployment, CronJob, ..."""

    kind: str
    name: str


@dataclass(frozen=True)
class Meta:
    uid: str
    generation: int
    created_us: int
    deleting_since_us: int | None = None
    finalizers: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PresentResource:
    """An existing resource. `parsed` is its content, or its faults."""

    document: Document
    meta: Meta
    parsed: Resource | tuple[Fault, ...]

    @property
    def valid(self) -> Resource | None:
        """Its content, if it has no faults."""
        return None if isinstance(self.parsed, tuple) else self.parsed


@dataclass(frozen=True)
class OperatorSettings:
    """The chart's settings; the same for all resources during the life of the process."""

    cluster: str
    """uid of namespace kube-system."""
    version: str
    image: str
    """The operator's own: workers without an image, repair and gc run it."""
    spark_image: str | None = None
    namespace: str = "headgate-system"
    connection_secret: str = "headgate-connection"  # noqa: S105 - the name of a Secret
    workers_secret: str | None = None
    """The connection of pods, beside that of the operator, with a role that may change no schema."""
    connection_namespaces: LabelSelector = EVERYTHING
    """The labels of the namespaces that may use the chart's connection."""
    pull_secrets: tuple[str, ...] = ()
    """By which images are pulled, in every namespace that has resources."""
    supported: frozenset[str] = frozenset()
    """Engines that this version carries, and `counter`."""
    tables_max: int = 300
    """Of ours in a Cassandra."""
    namespace_tables_max: int = 150
    """Dedicated ones of a namespace, so that no tenant takes the room of all."""
    drain_grace_s: int = 50

    @property
    def copied_secret(self) -> str:
        """The Secret of our own namespace that pods elsewhere get a copy of."""
        return self.workers_secret or self.connection_secret

    def pods_secret(self, namespace: str) -> str:
        """The Secret of the chart's connection for pods of a namespace. In ours they take the source itself, since
        the operator's own connection may stand there under the name of a copy."""
        if namespace == self.namespace and self.workers_secret is not None:
            return self.workers_secret
        return CONNECTION_COPY

    def supports(self, resource: Resource) -> bool:
        """Whether this version makes anything for it."""
        return engine_of(resource) in self.supported


@dataclass(frozen=True)
class StoreConnection:
    """A connection to Cassandra: the Secret in the resource's namespace, and its content."""

    secret: str
    digest: str
    keyspace: str
    data_center: str
    nodes: int
    is_copy: bool
    """Whether we keep the Secret, as a copy of the chart's."""
    pods_digest: str = ""
    """Of the Secret that pods get, if it is another one than the operator's own."""

    @property
    def placement(self) -> PlacementDefaults:
        """For a resource that does not choose for itself."""
        return PlacementDefaults(self.keyspace, self.data_center, self.nodes)


@dataclass(frozen=True)
class ResourceFailure:
    """Why something is unknown or impossible: the reason of a condition, with a message for its author."""

    reason: Reason
    message: str
    since_us: int = 0


@dataclass(frozen=True)
class StoreView:
    """The state of one resource in the store: read at SERIAL, whole."""

    entry: Entry | None
    """Of this name; None if there is none, or only one that is gone."""
    owner_lives: bool | Unread = UNKNOWN
    """Whether the owner of an entry that is not ours is a resource of this cluster that is there."""
    tables_made: frozenset[str] = frozenset()
    """Names noted as made, of the keyspace of its tables."""
    tables_there: frozenset[str] = frozenset()
    tables_total: int = 0
    """That Headgate made in this Cassandra, as far as its keyspaces were read. Like the next, it is read only where
    there is no entry yet."""
    namespace_tables: int = 0
    """Dedicated ones of the other resources of the namespace."""
    drifts: tuple[Drift, ...] = ()
    catalogue_there: bool = True
    """Whether the keyspace and the tables of the catalogue are there."""
    keyspace_there: bool = True
    """Whether the keyspace of its tables is there."""


@dataclass(frozen=True)
class QueueLoad:
    """The backlog, by the summary; `at_us` is when it was read."""

    at_us: int
    backlog: int | None = None
    """None: nobody is at work, so nobody counts."""
    counted: int | None = None
    """The count of `stats` at the wake-up, until there are owners' figures."""
    in_flight: int = 0
    oldest_us: int | None = None
    """The time since when the oldest waits."""
    rate: float = 0.0
    owners: int = 0
    leased: int = 0
    held: int = 0
    unreadable: int = 0
    """Rows that were set aside, since their stored bytes cannot be read."""
    awake: bool = False
    """An owner's row is recent, or a mark shows work that was not read yet."""
    later: tuple[LaterMark, ...] = ()

    @property
    def behind(self) -> int | None:
        """The backlog by the owners, or else by the count; None where it is not known."""
        return self.counted if self.backlog is None else self.backlog


@dataclass(frozen=True)
class LaneProblem:
    lane: str
    epoch: int
    message: str


@dataclass(frozen=True)
class LaneHealth:
    """The result of a check of the lanes; only queues that may need one get one."""

    at_us: int
    total: int
    leased: int
    unprocessed: tuple[LaneProblem, ...] = ()
    suspicious: tuple[LaneProblem, ...] = ()
    held: tuple[LaneProblem, ...] = ()


@dataclass(frozen=True)
class Passes:
    """The last results of repair, or of the collector, for one resource."""

    ended_us: int | None = None
    problems: int = 0
    message: str = ""
    owed_us: int | None = None
    """The due time of the oldest overdue check."""
    waits_for_all_us: int | None = None
    """The due time of the oldest check that waits for all replicas."""
    full_us: int | None = None
    """When the collector last passed over everything."""
    keys: int | None = None
    shards: int | None = None
    expired: int | None = None
    failed_runs: int = 0
    """Jobs that failed since the last that succeeded."""
    gc_after_too_short: str | None = None


@dataclass(frozen=True)
class BulkRun:
    bulk: str
    name: str
    uid: str
    minute: int
    state: Literal["Pending", "Running", "Succeeded", "Failed"]
    started_us: int | None = None
    ended_us: int | None = None
    done: int | None = None
    failed: int | None = None
    message: str = ""


@dataclass(frozen=True)
class PodStatus:
    """A pod of a consumer that does not become ready."""

    consumer: str
    name: str
    ready: bool
    restarts: int
    exit_code: int | None
    message: str
    """Its last words: of the termination message, or why it waits."""


@dataclass(frozen=True)
class Sibling:
    """Another queue of the namespace, as far as dead letters matter: where its own lead."""

    name: str
    dead_letters: tuple[str, ...]
    deleting: bool = False


@dataclass(frozen=True)
class NamespaceState:
    terminating: bool = False
    ready: bool = False
    """Its account and Secret are applied, so that pods can start."""
    is_admitted: bool | None = True
    """Whether it may use the chart's connection; None: its labels are not known yet."""
    uid: str = ""
    """Empty: it was not seen."""
    adopts_from: frozenset[str] = frozenset()
    """The uids of earlier namespaces of its name, whose data its resources may adopt."""
    failure: ResourceFailure | None = None


@dataclass(frozen=True)
class LastApply:
    """The API server's answer to our last apply of a child: its differences from our document are no drift."""

    applied: str
    """The digest of the document that was applied (`differing.stamp_of`)."""
    shows: Document | None
    """The object as it was answered; None if it was refused."""
    refused: str = ""
    """The server's words, where the same document would be refused again."""
    at_us: int = 0


@dataclass(frozen=True)
class ResourceWorld:
    key: Key
    settings: OperatorSettings
    resource: PresentResource | None
    """None: it is not there (any more)."""
    namespace: NamespaceState = NamespaceState()
    live: Mapping[ChildName, Document] = field(default_factory=dict)
    """Children that are there and ours."""
    foreign: Mapping[ChildName, str] = field(default_factory=dict)
    """Objects of other owners that have the name of a child, with their owner."""
    checked: frozenset[ChildName] = frozenset()
    """Places that were asked for by GET and are free: what is not there is made only where that was seen."""
    answers: Mapping[ChildName, LastApply] = field(default_factory=dict)
    siblings: Mapping[str, Sibling] | Unread = UNKNOWN
    connection: StoreConnection | ResourceFailure | Unread = UNKNOWN
    store: StoreView | ResourceFailure | Unread = UNKNOWN
    step_failure: ResourceFailure | None = None
    """Why the store's step that was tried last was refused (RightsMissing, ...); None once one succeeded."""
    figures: QueueLoad | Unread = UNKNOWN
    lanes: LaneHealth | Unread = UNKNOWN
    passes: Passes | Unread = UNKNOWN
    runs: tuple[BulkRun, ...] = ()
    pods: tuple[PodStatus, ...] = ()
    spark_operator: bool = False
    """Whether the cluster has SparkApplications."""

    @property
    def uid(self) -> str:
        """Of the resource; empty if there is none."""
        return self.resource.meta.uid if self.resource else ""

    @property
    def queue(self) -> QueueResource | None:
        parsed = self.resource.parsed if self.resource else None
        return parsed if isinstance(parsed, QueueResource) else None

    @property
    def status(self) -> Mapping[str, Any]:
        status = self.resource.document.get("status") if self.resource else None
        return status if isinstance(status, Mapping) else {}

    def reports(self, condition: str, status: str, generation: int | None = None) -> bool:
        """Whether a condition is reported with this status, of this generation if one is passed."""
        one = self._condition(condition)
        return one.get("status") == status and generation in (None, one.get("observedGeneration"))

    def reports_reason(self, condition: str, reason: str) -> bool:
        """Whether a condition is reported with this reason."""
        return self._condition(condition).get("reason") == reason

    def _condition(self, condition: str) -> Mapping[str, Any]:
        conditions = self.status.get("conditions") or ()
        return next((each for each in conditions if each.get("type") == condition), {})


@dataclass(frozen=True)
class JobGroup:
    """Resources of a namespace that share a CronJob: they have schedule, connection and image in common."""

    task: Literal["repair", "gc"]
    schedule: str
    connection: str
    image: str

    @classmethod
    def of(cls, resource: Resource, settings: OperatorSettings) -> JobGroup:
        spec = resource.spec
        secret = spec.storage.connection_secret or CONNECTION_COPY
        if isinstance(resource, QueueResource):
            return cls("repair", resource.spec.repair.schedule, secret, settings.image)
        return cls("gc", resource.spec.gc.schedule, secret, resource.spec.gc.image or settings.image)


@dataclass(frozen=True)
class NamespaceWorld:
    namespace: str
    settings: OperatorSettings
    present: bool
    terminating: bool
    wants_workers: bool
    """Some resource of it runs pods."""
    wants_copy: bool
    """Some resource names no Secret of its own."""
    wants_spark: bool
    groups: frozenset[JobGroup] | Unread
    source: Document | Unread | None
    """The chart's Secret."""
    is_admitted: bool | None = True
    """Whether the namespace may use the chart's connection; None: its labels are not known yet."""
    uid: str = ""
    adopts_from: frozenset[str] = frozenset()
    """As in NamespaceState."""
    live: Mapping[ChildName, Document] = field(default_factory=dict)
    foreign: Mapping[ChildName, str] = field(default_factory=dict)
    checked: frozenset[ChildName] = frozenset()
    answers: Mapping[ChildName, LastApply] = field(default_factory=dict)


@dataclass(frozen=True)
class FieldRevert:
    """A field that was found changed, and how often we set it back."""

    child: ChildName
    field: str
    at_us: tuple[int, ...]
    version: str = ""
    """The resourceVersion at which it was found last: the same finding is not counted twice."""


@dataclass(frozen=True)
class DecisionMemory:
    """The memory of the decisions about one key; kept regardless of the results of their effects.
    Losing it may delay by a window, and undoes nothing."""

    uid: str = ""
    """The creation that all of it is about; of another creation nothing is remembered."""
    generation: int = 0
    """The latest that was decided about: an older one is never acted upon."""
    stored: tuple[int, int] | None = None
    """(generation, shards in force): the latest whose part of the store was found to be all there."""
    began_us: int = 0
    """When that generation was first decided about: its first status is held back for a short time."""
    busy_since_us: int | None = None
    """Since when each decision has found something to do: a status waits for the end of that, for a short time."""
    status_at_us: int = 0
    """When the status was written last."""
    wanted: tuple[tuple[str, int, int], ...] = ()
    """(consumer, time, wanted replicas): of the last 30 seconds."""
    raised_us: tuple[tuple[str, int], ...] = ()
    """(consumer, when the replicas were last doubled for lag)."""
    backlog_before: tuple[int, int] | None = None
    """(time, backlog), to know whether the backlog falls."""
    unwell_until_us: int = 0
    """The end of extra processing."""
    not_ready_since_us: tuple[tuple[str, int], ...] = ()
    """(consumer, since when fewer workers are ready than should be)."""
    stopped: tuple[tuple[str, int, int], ...] = ()
    """(lane, epoch, time of the order to stop)."""
    reverts: tuple[FieldRevert, ...] = ()
    accepted: Mapping[ChildName, str] = field(default_factory=dict)
    """Digest of (document applied, what the server shows otherwise): what a webhook changed is not fought over."""
    store_down_since_us: int | None = None
    """Since when Cassandra does not answer; the first seconds of that are not reported."""
