"""Every option of the chart, set to something: what is rendered here and offered to a real API server elsewhere.

Mistakes, each with its one line of report. `leaves` is how a test knows that no option was forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dev.cluster.helm import CHART, Helm

Values = dict[str, Any]

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n"
PEER = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
KUBERNETES = ("--kube-version", "1.34.3")
"""Asked for by name: a Helm that was built from its module alone takes a very old one for granted."""
BASE: Values = {"connection": {"contactPoints": ["cassandra.db.svc"]}}
"""The least that installs."""

CASES: Mapping[str, Values] = {
    "the least": {},
    "one process": {"operator": {"replicas": 1, "spread": "DoNotSchedule"}},
    "a registry of one's own": {
        "global": {"imageRegistry": "registry.internal:5000/mirror"},
        "image": {"repository": "team/headgate", "tag": "9.9.9", "pullPolicy": "Always", "pullSecrets": ["pull"]},
        "cassandra": {"image": {"repository": "team/cassandra", "tag": "5.0.9", "pullPolicy": "Always"}},
        "spark": {"image": "registry.internal:5000/headgate-spark:9", "role": False},
        "workers": {"pullSecrets": ["pull-one", "pull-two"]},
    },
    "images by digest": {
        "image": {"registry": "registry.internal", "digest": "sha256:" + "0" * 64},
        "cassandra": {"image": {"registry": "registry.internal", "digest": "sha256:" + "1" * 64}},
    },
    "names": {"fullnameOverride": "sluice", "nameOverride": "gate", "serviceAccount": {"name": "keeper"}},
    "the operator's pods": {
        "operator": {
            "replicas": 3,
            "qps": 7,
            "logLevel": "debug",
            "logFormat": "text",
            "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
            "maxUnavailable": 2,
            "priorityClassName": "system-cluster-critical",
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"key": "infra", "operator": "Exists", "effect": "NoSchedule"}],
            "affinity": {
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "podAffinityTerm": {"topologyKey": "rack", "labelSelector": {}}}
                    ]
                }
            },
            "labels": {"team": "platform"},
            "annotations": {"example.org/note": "yes"},
        },
        "serviceAccount": {"annotations": {"example.org/role": "headgate"}},
    },
    "a connection with everything": {
        "connection": {
            "contactPoints": ["10.0.0.1", "node-2.db:9142", "[fd00::1]:9042"],
            "dataCenter": "eu-1",
            "keyspace": "queues",
            "clusterName": "Main",
            "username": "headgate",
            "password": "a b'c\"{{d}}",
            "tls": {"enabled": True, "ca": PEM, "certificate": PEM, "key": KEY},
            "graphite": {"address": "graphite:2003", "prefix": "prod.headgate"},
        }
    },
    "workers with a role of their own": {
        "connection": {
            "username": "headgate",
            "password": "may-drop",
            "workers": {"username": "worker", "password": "may-not"},
            "namespaces": {
                "matchLabels": {"team": "shop"},
                "matchExpressions": [{"key": "stage", "operator": "In", "values": ["live", "test"]}],
            },
        }
    },
    "workers with a Secret of their own": {
        "connection": {
            "contactPoints": [],
            "existingSecret": "our-cassandra",
            "workers": {"existingSecret": "our-cassandra-workers"},
        }
    },
    "room for many tables": {"tables": {"max": 900, "maxPerNamespace": 90}},
    "explanations for tenants": {"inspection": {"tlsSecret": "headgate-inspection"}},
    "authors without a question": {"admissionPolicy": {"enabled": False}},
    "a Secret that is there": {"connection": {"contactPoints": [], "existingSecret": "our-cassandra"}},
    "a Cassandra for trying out": {
        "connection": {"contactPoints": []},
        "cassandra": {
            "enabled": True,
            "heap": "1G",
            "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "3Gi"}},
            "user": 1234,
        },
        "networkPolicy": {"enabled": True},
    },
    "a Cassandra with a volume": {
        "connection": {"contactPoints": []},
        "cassandra": {"enabled": True, "user": 0, "storage": {"size": "10Gi", "className": "fast"}},
    },
    "definitions of one's own": {"crds": {"apply": False}},
    "no guard": {"uninstall": {"guard": False}},
    "an end without definitions": {"crds": {"keep": False}},
    "closed networks": {
        "networkPolicy": {
            "enabled": True,
            "metricsFrom": [PEER],
            "inspectionFrom": [PEER],
            "cassandra": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
            "cassandraPort": 9142,
            "apiServer": [{"ipBlock": {"cidr": "10.1.0.1/32"}}],
            "apiServerPorts": [8443],
            "workersOf": ["default"],
        },
        "inspection": {"tlsSecret": "headgate-inspection"},
    },
    "everything for Prometheus and Grafana": {
        "metrics": {
            "serviceMonitor": {"enabled": True, "interval": "5s", "labels": {"release": "prometheus"}},
            "podMonitor": {"enabled": True, "interval": "1m", "labels": {"release": "prometheus"}},
        },
        "alerts": {
            "enabled": True,
            "labels": {"release": "prometheus"},
            "runbooks": "https://runbooks.example.org/headgate",
            "disabled": ["HeadgateDeadLetters"],
            "alertLabels": {"team": "platform"},
            "queueLagSeconds": 42,
        },
        "dashboard": {"enabled": True, "labels": {"grafana_dashboard": "yes"}, "annotations": {"folder": "Queues"}},
    },
    "another test": {"test": {"messages": 3, "timeout": "5m"}},
}


@dataclass(frozen=True)
class Mistake:
    """Invalid values, and the report of each."""

    values: Values
    line: str


NO_WAY = "No connection to Cassandra: set connection.existingSecret, connection.contactPoints, or"
SECRET = {"contactPoints": [], "existingSecret": "ours"}
MISTAKES: Mapping[str, Mistake] = {
    "nothing": Mistake({"connection": {"contactPoints": []}}, NO_WAY),
    "two ways": Mistake(
        {"cassandra": {"enabled": True}}, "set one of connection.contactPoints and cassandra.enabled"
    ),
    "a role of workers beside a Secret": Mistake(
        {"connection": {**SECRET, "workers": {"username": "a", "password": "b"}}},
        "connection.workers.username and connection.existingSecret are both set",
    ),
    "the operator's Secret for workers": Mistake(
        {"connection": {**SECRET, "workers": {"existingSecret": "ours"}}},
        "connection.workers.existingSecret is the operator's own Secret",
    ),
    "two ways for workers": Mistake(
        {"connection": {"workers": {"existingSecret": "theirs", "username": "a", "password": "b"}}},
        "connection.workers.existingSecret and connection.workers.username are both set",
    ),
    "a role of workers without a password": Mistake(
        {"connection": {"workers": {"username": "a"}}},
        "connection.workers.username and connection.workers.password belong together",
    ),
    "the operator's role for workers": Mistake(
        {"connection": {"username": "a", "password": "b", "workers": {"username": "a", "password": "b"}}},
        "connection.workers.username is connection.username",
    ),
    "a selector that selects nothing": Mistake(
        {"connection": {"namespaces": {"team": "shop"}}}, "'/connection/namespaces'"
    ),
    "a password beside a Secret": Mistake(
        {"connection": {**SECRET, "password": "x"}}, "connection.password and connection.existingSecret are both set"
    ),
    "certificates beside a Secret": Mistake(
        {"connection": {**SECRET, "tls": {"enabled": True}}},
        "connection.tls and connection.existingSecret are both set",
    ),
    "Graphite beside a Secret": Mistake(
        {"connection": {**SECRET, "graphite": {"address": "a:1"}}},
        "connection.graphite and connection.existingSecret are both set",
    ),
    "a name without a password": Mistake(
        {"connection": {"username": "a"}}, "connection.username is set and connection.password is not"
    ),
    "a password without a name": Mistake(
        {"connection": {"password": "a"}}, "connection.password is set and connection.username is not"
    ),
    "certificates that are not used": Mistake(
        {"connection": {"tls": {"ca": PEM}}}, "connection.tls has certificates and connection.tls.enabled is false"
    ),
    "a certificate without its key": Mistake(
        {"connection": {"tls": {"enabled": True, "certificate": PEM}}},
        "connection.tls.certificate and connection.tls.key belong together",
    ),
    "a path where a file's text should be": Mistake(
        {"connection": {"tls": {"enabled": True, "ca": "/etc/ca.pem"}}}, "connection.tls.ca is not PEM"
    ),
    "a prefix for nothing": Mistake(
        {"connection": {"graphite": {"prefix": "a"}}}, "connection.graphite.prefix is set and"
    ),
    "an end that nobody makes": Mistake(
        {"crds": {"keep": False}, "uninstall": {"guard": False}}, "crds.keep=false needs uninstall.guard=true"
    ),
    "an alert that is not there": Mistake(
        {"alerts": {"disabled": ["HeadgateBored"]}}, "alerts.disabled: there is no alert HeadgateBored"
    ),
    "a key that is not there": Mistake({"operator": {"replica": 2}}, "additional properties 'replica' not allowed"),
    "a key at the top that is not there": Mistake({"operators": {}}, "additional properties 'operators' not allowed"),
    "a number for a text": Mistake({"image": {"tag": 1}}, "'/image/tag': got number, want string"),
    "text for a number": Mistake({"operator": {"replicas": "two"}}, "'/operator/replicas': got string, want integer"),
    "too many": Mistake({"operator": {"replicas": 11}}, "'/operator/replicas': maximum: got 11, want 10"),
    "an address with a scheme": Mistake(
        {"connection": {"contactPoints": ["http://cassandra"]}}, "'/connection/contactPoints/0'"
    ),
    "one text for a list": Mistake(
        {"connection": {"contactPoints": "cassandra"}}, "'/connection/contactPoints': got string, want array"
    ),
    "an image with its tag": Mistake({"image": {"repository": "headgate:1"}}, "'/image/repository'"),
    "a digest that is none": Mistake({"image": {"digest": "sha256:1"}}, "'/image/digest'"),
    "a policy that is none": Mistake({"image": {"pullPolicy": "Sometimes"}}, "'/image/pullPolicy'"),
    "a keyspace in capitals": Mistake({"connection": {"keyspace": "Queues"}}, "'/connection/keyspace'"),
    "no duration": Mistake({"test": {"timeout": "long"}}, "'/test/timeout'"),
    "a peer of nothing": Mistake({"networkPolicy": {"metricsFrom": [{}]}}, "'/networkPolicy/metricsFrom/0'"),
    "runbooks nowhere": Mistake({"alerts": {"runbooks": "docs"}}, "'/alerts/runbooks'"),
}


def with_base(values: Mapping[str, Any]) -> Values:
    """Over the least that installs."""
    return merged(BASE, values)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Values:
    """As Helm merges values."""
    values = dict(below)
    for name, value in above.items():
        both = isinstance(value, Mapping) and isinstance(values.get(name), Mapping)
        values[name] = merged(values[name], value) if both else value
    return values


def rendered(helm: Helm, values: Mapping[str, Any], *, release: str = "headgate") -> list[dict[str, Any]]:
    """All that an installation would make, hooks and tests too."""
    text = helm.run(
        *("template", release, str(CHART), "--namespace", "headgate-system", *KUBERNETES),
        values=with_base(values),
    )
    return [document for document in yaml.safe_load_all(text) if document]


def defaults() -> Values:
    """values.yaml."""
    text: Values = yaml.safe_load(Path(CHART, "values.yaml").read_text())
    return text


def leaves(values: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    """Each option by its path, with what it is set to."""
    for name, value in values.items():
        path = f"{at}.{name}" if at else name
        if isinstance(value, Mapping) and value:
            yield from leaves(value, path)
        else:
            yield path, value
