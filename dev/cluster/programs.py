"""Which programs a cluster is made of, at which versions, and how long each takes to build.

A version of Kubernetes is not free to choose: the checksums of its staging modules are published completely for
some patch releases only (docs/decisions/0002-kubernetes-from-source.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from dev.cluster.golang import Own, Program, Published, build, delete_go_caches, entry_version, require_go
from headgate.local.cache import is_cached
from headgate.local.progress import print_progress, step

KUBERNETES = "1.34.3"

HYPERKUBE = Own(
    name="hyperkube",
    version=KUBERNETES,
    title="building Kubernetes from source",
    expect_s=400,
    variables={
        f"{package}.{name}": value
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for name, value in {
            "gitVersion": f"v{KUBERNETES}",
            "gitMajor": "1",
            "gitMinor": KUBERNETES.split(".")[1],
            "gitTreeState": "clean",
            "gitCommit": "0" * 40,
            "buildDate": "2026-01-01T00:00:00Z",
        }.items()
    },
    aliases=(
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-proxy",
        "kube-scheduler",
        "kubectl",
        "kubelet",
    ),
    needs_mb=8000,
)
COREDNS = Own("coredns", "1.12.4", "building CoreDNS", 60, needs_mb=4000)
PAUSE = Own("pause", "1", "building pause", 10)
CERTIFICATES = Own("certificates", "1", "building certificates", 10)
HELM = Published(
    name="helm",
    version="3.22.0",
    title="building helm",
    expect_s=120,
    module="helm.sh/helm/v3",
    package="./cmd/helm",
    module_sum="h1:n1if5iQgHYsujPAcO5oonH/KiSNUmqmUF0iGVjSF3AU=",
    variables={"helm.sh/helm/v3/internal/version.version": "v3.22.0"},
)
KWOK = Published(
    name="kwok",
    version="0.8.0",
    title="building kwok",
    expect_s=170,
    module="sigs.k8s.io/kwok",
    package="./cmd/kwok",
    module_sum="h1:OTIOTwgROqPMovcTwxICx2eYQ4AwLpSx5EpjbDKF4SQ=",
    variables={"sigs.k8s.io/kwok/pkg/consts.Version": "v0.8.0"},
    keep=("kustomize/stage",),
)
SPARK_OPERATOR = Published(
    name="spark-operator",
    version="2.5.1",
    title="building spark-operator",
    expect_s=180,
    module="github.com/kubeflow/spark-operator/v2",
    package="./cmd/operator",
    module_sum="h1:7E1iz79b5p8fEcn2zr/yJ/T3kuZtJJqj+DPvvGV3WjA=",
    keep=("config/crd",),
)
METRICS_SERVER = Published(
    name="metrics-server",
    version="0.9.0",
    title="building metrics-server",
    expect_s=260,
    module="sigs.k8s.io/metrics-server",
    package="./cmd/metrics-server",
    module_sum="h1:nlqqZ2H0Xfko8eJC/1qaNVVT17hu4rxndkOi22KTZ4w=",
)

PROMETHEUS = Published(
    name="prometheus",
    version="0.315.0",
    title="building prometheus",
    expect_s=330,
    module="github.com/prometheus/prometheus",
    package="./cmd/prometheus",
    module_sum="h1:sFGZWmC2Hk9N1NBJGCnXYZb5hyLCq8yuAMoEjLAg6ac=",
    # Service discovery in clouds is two thirds of it: the tests list their targets in a file.
    tags=("remove_all_sd",),
    also={"promtool": "./cmd/promtool"},
)

PROMETHEUS_OPERATOR = Published(
    name="prometheus-operator",
    version="0.85.0",
    title="fetching the Prometheus operator's definitions",
    expect_s=10,
    module="github.com/prometheus-operator/prometheus-operator",
    package="./cmd/operator",
    module_sum="h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
    keep=("example/prometheus-operator-crd",),
)
"""Its definitions alone are used: they need no build."""

# The longest first: the second build fills the time in which it downloads and links.
FOR_A_NODE: tuple[Program, ...] = (HYPERKUBE, CERTIFICATES, PAUSE, COREDNS)
WITHOUT_ROOT: tuple[Program, ...] = (HYPERKUBE, CERTIFICATES, KWOK)
EXTRAS: dict[str, Program] = {each.name: each for each in (HELM, KWOK, SPARK_OPERATOR, METRICS_SERVER, PROMETHEUS)}


def is_built(program: Program) -> bool:
    """Whether asking for it takes no time."""
    return is_cached(program.name, entry_version(program))


def require_built(programs: Iterable[Program]) -> dict[str, Path]:
    """The directory of each program; missing ones are built, with a message and a duration."""
    wanted = list(programs)
    missing = [program for program in wanted if not is_built(program)]
    if missing:
        require_go()
        if HYPERKUBE in missing:
            print_progress(
                "  Kubernetes is built from source, once for this machine: minutes, all cores, 6 GB of disk while it"
                " lasts and 150 MB after.\n"
                "  To skip this, stop it and name a cluster you have (`make demo CONTEXT=name`), or start Docker"
                " and install kind."
            )
        # Two at once: a build is narrow while it downloads and while it links.
        pool = ThreadPoolExecutor(max_workers=2)
        try:
            for done in as_completed([pool.submit(_build_with_log, program) for program in missing]):
                done.result()
        finally:
            # After a failure nothing else is started, and the caller learns of it at once.
            pool.shutdown(wait=False, cancel_futures=True)
        delete_go_caches()
    return {program.name: build(program) for program in wanted}


def _build_with_log(program: Program) -> None:
    with step(f"{program.title} {program.version}", expect_s=program.expect_s):
        build(program)
