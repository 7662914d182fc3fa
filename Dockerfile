# The images of Headgate: `headgate` is every process but Spark's; `headgate-spark` is drivers and executors.
#
#     docker build --target headgate --tag headgate .
#     docker build --target headgate-spark --tag headgate-spark .
#
# docs/chart.md describes their users and sizes, and how to build them without a registry.
# Needs nothing of BuildKit. Every dependency is installed by the hashes of a lock file, from built wheels: nothing is
# compiled, so no compiler is fetched. Layers go from what seldom changes to what often does.

ARG BASE=python:3.11-slim-bookworm


# What the lock file names, in a virtual environment. It has no pip of its own: nothing is installed where it runs.
FROM ${BASE} AS packages
ARG PIP_INDEX_URL
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv --without-pip /opt/headgate
COPY requirements.lock /build/
RUN python3 -m pip --python /opt/headgate/bin/python3 install \
        --require-hashes --only-binary=:all: --requirement /build/requirements.lock


# What builds wheels: ours, and PySpark's, which is published as source only.
FROM ${BASE} AS builders
ARG PIP_INDEX_URL
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv --without-pip /build/venv
COPY requirements-build.lock /build/
RUN python3 -m pip --python /build/venv/bin/python3 install \
        --require-hashes --only-binary=:all: --requirement /build/requirements-build.lock


# Our own packages as a layer of their own: what an installation of the wheel adds below /opt/headgate.
FROM builders AS code
COPY pyproject.toml README.md LICENSE /build/tree/
COPY workers/headgate /build/tree/workers/headgate
COPY operator/headgate_operator /build/tree/operator/headgate_operator
COPY spark/headgate_spark /build/tree/spark/headgate_spark
RUN python3 -m pip --python /build/venv/bin/python3 wheel \
        --no-deps --no-build-isolation --wheel-dir /build/wheels /build/tree \
    && python3 -m venv --without-pip /opt/headgate \
    && python3 -m pip --python /opt/headgate/bin/python3 install \
        --no-deps --no-index --no-warn-script-location --root /build/root /build/wheels/*.whl


FROM ${BASE} AS headgate
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="headgate" \
      org.opencontainers.image.description="Durable queues and counters on Cassandra: operator, worker, repair, gc" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
# It runs under any user id: it writes only below /tmp, and needs no name of the user.
ENV PATH=/opt/headgate/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    USER=headgate
USER 65532:65532
WORKDIR /tmp
CMD ["headgate", "--help"]
COPY --from=packages /opt/headgate /opt/headgate
COPY --from=code /build/root /


# The same for Spark: another lock file, PySpark with its jars where Spark's own images have them, and the main file of
# our bulk jobs.
FROM builders AS spark-packages
COPY requirements-spark.lock /build/
RUN python3 -m pip --python /build/venv/bin/python3 wheel \
        --require-hashes --only-binary=:all: --no-binary=pyspark --no-build-isolation \
        --wheel-dir /build/wheels --requirement /build/requirements-spark.lock \
    && python3 -m venv --without-pip /opt/headgate \
    && python3 -m pip --python /opt/headgate/bin/python3 install --no-deps --no-index /build/wheels/*.whl \
    && rm -r /build/wheels \
    && mkdir -p /build/root/opt \
    && mv /opt/headgate /build/root/opt/ \
    && cd /build/root/opt \
    && ln -s headgate/lib/python3.*/site-packages/pyspark spark \
    && mkdir -p spark/conf spark/work-dir \
    && printf 'import runpy\n\nrunpy.run_module("headgate_spark.bulk_program", run_name="__main__")\n' > headgate/bulk.py


# Java, and the library by which the JVM finds a name for a user's number that has none. Debian's Java misses the
# directory of man pages where a slim image has removed it.
FROM ${BASE} AS java
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless libnss-wrapper \
    && apt-get clean \
    && rm -rf /var/lib/apt/lists/* /tmp/hsperfdata_* \
    && ln -s /usr/lib/jvm/java-17-openjdk-* /opt/java


FROM java AS headgate-spark
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="headgate-spark" \
      org.opencontainers.image.description="Bulk jobs of Headgate: drivers and executors of Spark" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
ENV PATH=/opt/headgate/bin:/opt/spark/bin:/opt/java/bin:/usr/local/bin:/usr/bin:/bin \
    JAVA_HOME=/opt/java \
    SPARK_HOME=/opt/spark \
    PYSPARK_PYTHON=/opt/headgate/bin/python3 \
    PYSPARK_DRIVER_PYTHON=/opt/headgate/bin/python3 \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    USER=headgate
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["python3", "-m", "headgate_spark.entrypoint"]
CMD ["spark-submit", "--version"]
COPY --from=spark-packages /build/root /
COPY --from=code /build/root /
