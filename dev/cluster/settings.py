"""The configuration of every program of a local cluster, as values: command lines, files, objects.

Pure: nothing is written or started. JSON is written where YAML is expected, being a subset of it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.cluster.plan import API_PORT, ETCD_PORT, Plan

AUDIT_POLICY = "audit.json"
PAUSE_IMAGE = "headgate.local/pause:1"


@dataclass(frozen=True)
class ControlPlane:
    """The control plane's addresses and clients."""

    programs: Path
    certificates: Path
    settings: Path
    data: Path
    api_port: int
    etcd_port: int
    etcd_peer_port: int
    controllers_port: int
    scheduler_port: int
    # With a node: the addresses that pods reach it by. Without: only this machine's loopback.
    plan: Plan | None

    @property
    def audit_log(self) -> Path:
        """The API server's audit log, a line of JSON each."""
        return self.settings.parent / "log" / "audit.log"


def for_node(plan: Plan, programs: Path) -> ControlPlane:
    """In a network namespace of its own every port is free: the usual ones."""
    return ControlPlane(
        programs,
        plan.certificates,
        plan.settings,
        plan.directory / "etcd",
        API_PORT,
        ETCD_PORT,
        2380,
        10257,
        10259,
        plan,
    )


def etcd(where: ControlPlane) -> list[str]:
    """The store; it need not survive a power cut, so it does not wait for the disk."""
    client, peer = f"http://127.0.0.1:{where.etcd_port}", f"http://127.0.0.1:{where.etcd_peer_port}"
    return [
        str(where.programs / "etcd"),
        f"--data-dir={where.data}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--log-level=warn",
    ]


def api_server(where: ControlPlane) -> list[str]:
    """The API server."""
    keys = where.certificates
    plan = where.plan
    if plan is None:
        listening = ["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none"]
        services = "10.125.255.0/24"
    else:
        listening = ["--bind-address=0.0.0.0", f"--advertise-address={plan.node_address}"]
        services = str(plan.service_network)
    return [
        str(where.programs / "kube-apiserver"),
        f"--etcd-servers=http://127.0.0.1:{where.etcd_port}",
        *listening,
        f"--secure-port={where.api_port}",
        f"--tls-cert-file={keys}/apiserver.crt",
        f"--tls-private-key-file={keys}/apiserver.key",
        f"--client-ca-file={keys}/ca.crt",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={keys}/service-accounts.pub",
        f"--service-account-signing-key-file={keys}/service-accounts.key",
        f"--service-cluster-ip-range={services}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--profiling=false",
        f"--audit-policy-file={where.settings}/{AUDIT_POLICY}",
        f"--audit-log-path={where.audit_log}",
        "--audit-log-maxsize=200",
        "--audit-log-maxbackup=1",
        f"--kubelet-client-certificate={keys}/apiserver-to-kubelet.crt",
        f"--kubelet-client-key={keys}/apiserver-to-kubelet.key",
        f"--kubelet-certificate-authority={keys}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        f"--proxy-client-cert-file={keys}/front-proxy.crt",
        f"--proxy-client-key-file={keys}/front-proxy.key",
        f"--requestheader-client-ca-file={keys}/ca.crt",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
    ]


def audit_policy() -> dict[str, Any]:
    """All requests but those of Kubernetes' own parts: tests and benchmarks count requests and used permissions by
    it."""
    own = [f"system:{name}" for name in ("apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "users": own},
            {"level": "None", "userGroups": ["system:nodes", "system:serviceaccounts:kube-system"]},
            {"level": "None", "nonResourceURLs": ["/*"]},
            {"level": "Metadata"},
        ],
    }


def controllers(where: ControlPlane) -> list[str]:
    """The controllers; without the rates they would spend their first five seconds waiting for themselves."""
    keys, own = where.certificates, where.settings / "controllers.kubeconfig"
    networks = ["--allocate-node-cidrs=false"]
    if where.plan is not None:
        networks = [
            "--allocate-node-cidrs=true",
            f"--cluster-cidr={where.plan.pod_network}",
            f"--service-cluster-ip-range={where.plan.service_network}",
            "--node-cidr-mask-size=24",
        ]
    return [
        str(where.programs / "kube-controller-manager"),
        f"--kubeconfig={own}",
        f"--authentication-kubeconfig={own}",
        f"--authorization-kubeconfig={own}",
        "--bind-address=127.0.0.1",
        f"--secure-port={where.controllers_port}",
        "--leader-elect=false",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={keys}/service-accounts.key",
        f"--root-ca-file={keys}/ca.crt",
        f"--cluster-signing-cert-file={keys}/ca.crt",
        f"--cluster-signing-key-file={keys}/ca.key",
        *networks,
    ]


def scheduler(where: ControlPlane) -> list[str]:
    """The scheduler."""
    own = where.settings / "scheduler.kubeconfig"
    return [
        str(where.programs / "kube-scheduler"),
        f"--kubeconfig={own}",
        f"--authentication-kubeconfig={own}",
        f"--authorization-kubeconfig={own}",
        "--bind-address=127.0.0.1",
        f"--secure-port={where.scheduler_port}",
        "--leader-elect=false",
    ]


def kubelet(plan: Plan, programs: Path) -> list[str]:
    """The kubelet; its directory is its usual one, in the cluster's own mount namespace."""
    return [
        str(programs / "kubelet"),
        f"--config={plan.settings}/kubelet.json",
        f"--kubeconfig={plan.settings}/kubelet.kubeconfig",
        f"--hostname-override={plan.node_name}",
        f"--node-ip={plan.node_address}",
    ]


def kubelet_file(plan: Plan) -> dict[str, Any]:
    """Its settings. An image that it collected could not be pulled again, so it collects none."""
    keys = plan.certificates
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": plan.node_address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{keys}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{plan.cgroup}",
        "clusterDNS": [plan.dns_address],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": f"unix://{plan.containerd_socket}",
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "failCgroupV1": False,
        "failSwapOn": False,
        "healthzBindAddress": "127.0.0.1",
        "imageGCHighThresholdPercent": 100,
        "maxOpenFiles": 20000,
        "nodeStatusUpdateFrequency": "5s",
        "oomScoreAdj": 0,
        "podLogsDir": str(plan.directory / "pod-logs"),
        "registerWithTaints": [],
        "resolvConf": str(plan.settings / "resolv.conf"),
        "serializeImagePulls": False,
        "syncFrequency": "10s",
        "tlsCertFile": f"{keys}/kubelet.crt",
        "tlsPrivateKeyFile": f"{keys}/kubelet.key",
        "volumePluginDir": str(plan.directory / "volume-plugins"),
    }


def proxy(plan: Plan, programs: Path) -> list[str]:
    """kube-proxy."""
    return [str(programs / "kube-proxy"), f"--config={plan.settings}/kube-proxy.json"]


def proxy_file(plan: Plan) -> dict[str, Any]:
    """Its settings; the connection tracking of the machine stays as it is."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "bindAddress": "0.0.0.0",  # noqa: S104  # of a network namespace that only this machine reaches
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "clientConnection": {"kubeconfig": f"{plan.settings}/kube-proxy.kubeconfig"},
        "clusterCIDR": str(plan.pod_network),
        "hostnameOverride": plan.node_name,
        "oomScoreAdj": 0,
        "iptables": {"minSyncPeriod": "0s", "syncPeriod": "30s"},
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpCloseWaitTimeout": "0s", "tcpEstablishedTimeout": "0s"},
    }


def containerd_file(plan: Plan, *, plugins: Path, snapshotter: str) -> str:
    """containerd's settings: everything below the cluster's directory, no registry, no systemd."""
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    disabled = [f"io.containerd.snapshotter.v1.{name}" for name in ("aufs", "btrfs", "zfs", "devmapper")]
    return "\n".join(
        [
            "version = 2",
            f"root = {json.dumps(str(plan.image_store))}",
            f"state = {json.dumps(str(plan.containerd_socket.parent))}",
            f"disabled_plugins = {json.dumps([*disabled, 'io.containerd.internal.v1.tracing'])}",
            "[grpc]",
            f"  address = {json.dumps(str(plan.containerd_socket))}",
            '[plugins."io.containerd.internal.v1.opt"]',
            f"  path = {json.dumps(str(plan.directory / 'opt'))}",
            f"[{cri}]",
            f"  sandbox_image = {json.dumps(PAUSE_IMAGE)}",
            "  restrict_oom_score_adj = true",
            "  disable_apparmor = true",
            "  disable_hugetlb_controller = true",
            "  tolerate_missing_hugetlb_controller = true",
            "  netns_mounts_under_state_dir = true",
            f"[{cri}.containerd]",
            f"  snapshotter = {json.dumps(snapshotter)}",
            f"[{cri}.containerd.runtimes.runc]",
            '  runtime_type = "io.containerd.runc.v2"',
            f"[{cri}.containerd.runtimes.runc.options]",
            "  SystemdCgroup = false",
            f"[{cri}.cni]",
            f"  bin_dir = {json.dumps(str(plugins))}",
            f"  conf_dir = {json.dumps(str(plan.settings / 'cni'))}",
            "",
        ]
    )


def cni_file(plan: Plan) -> dict[str, Any]:
    """The pods' network: a link each to the node, no bridge, so that no setting of the machine's bridges matters."""
    return {
        "cniVersion": "1.0.0",
        "name": "headgate",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(plan.directory / "cni" / "addresses"),
                    "ranges": [[{"subnet": str(plan.pod_network)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
        ],
    }


def dns_file(plan: Plan) -> str:
    """CoreDNS's settings: names of the cluster only, since there is no other network."""
    return f""".:53 {{
  bind {plan.node_address}
  errors
  ready 127.0.0.1:8181
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {plan.settings}/dns.kubeconfig
    pods insecure
  }}
  cache 5
}}
"""


def dns_objects(plan: Plan) -> list[dict[str, Any]]:
    """The Service of the DNS, which is a process of the node and no pod."""
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    where = {"name": "kube-dns", "namespace": "kube-system"}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": where,
            "spec": {"clusterIP": plan.dns_address, "ports": ports},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**where, "name": "kube-dns-node", "labels": {"kubernetes.io/service-name": "kube-dns"}},
            "addressType": "IPv4",
            "ports": ports,
            "endpoints": [{"addresses": [plan.node_address], "conditions": {"ready": True}}],
        },
    ]


def kubeconfig(certificates: Path, user: str, server: str, name: str) -> dict[str, Any]:
    """How `user` reaches the API server, with nothing outside the file."""

    def inlined(file: str) -> str:
        return base64.b64encode((certificates / file).read_bytes()).decode()

    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": server, "certificate-authority-data": inlined("ca.crt")}},
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": inlined(f"{user}.crt"),
                    "client-key-data": inlined(f"{user}.key"),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }


def kubeconfig_users(*, with_node: bool) -> Sequence[str]:
    """Which programs of the cluster need a kubeconfig of their own."""
    own = ("controllers", "scheduler")
    return (*own, "kubelet", "kube-proxy", "dns") if with_node else own
