"""A container image of Cassandra from the same jars, for engines that can pull none: it behaves as the official one.

A tar archive of a root file system: Debian's JRE unpacked, the jars, and the three files through which the official
image is used: its entrypoint (which reads CASSANDRA_* variables), its `cassandra -f`, its configuration.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from dev.servers import debian
from headgate.local.cache import cached
from headgate.local.cassandra.installation import VERSION, jars
from headgate.local.cassandra.node import module_arguments

IMAGE = "cassandra:5.0"
"""The official image's tag, and the local one's where that was imported."""
CHANGES = ('ENTRYPOINT ["docker-entrypoint.sh"]', 'CMD ["cassandra", "-f"]', "EXPOSE 7000 7199 9042")

_PACKAGES = ("base-files", "coreutils", "dash", "grep", "hostname", "openjdk-17-jre-headless", "sed")
_MADE_AS = "1"
_LEFT_OUT = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/fonts", "var/cache", "packages.txt")


def image_archive() -> Path:
    """A root file system for `docker import`; made once."""
    entry = cached("cassandra-image", f"{VERSION}-{_MADE_AS}", _make, needs_mb=900)
    return entry / "root.tar"


def _make(entry: Path) -> None:
    base = debian.unpacked(*_PACKAGES, standalone=True)
    tree = entry / "tree"
    # Hard links cost no copies; a file is replaced, never written through, since the cache's own would change too.
    subprocess.run(["cp", "--archive", "--link", base, tree], check=True)
    for path, text, mode in _files():
        file = tree / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.write_text(text)
        file.chmod(mode)
    library = tree / "opt/cassandra/lib"
    library.mkdir(parents=True)
    for jar in jars().glob("*.jar"):
        (library / jar.name).hardlink_to(jar)
    (tree / "var/lib/cassandra").mkdir(parents=True)
    excluded = [f"--exclude=./{path}" for path in _LEFT_OUT]
    subprocess.run(
        [
            *("tar", "--create", "--owner=0", "--group=0", "--file", entry / "root.tar", "--directory", tree),
            *excluded,
            ".",
        ],
        check=True,
    )
    shutil.rmtree(tree)


def _files() -> list[tuple[str, str, int]]:
    return [
        ("usr/local/bin/docker-entrypoint.sh", _ENTRYPOINT, 0o755),
        ("usr/local/bin/cassandra", _CASSANDRA.replace("@MODULES@", " ".join(module_arguments())), 0o755),
        ("etc/cassandra/cassandra.yaml", _YAML, 0o644),
        ("etc/cassandra/cassandra-rackdc.properties", "dc=dc1\nrack=rack1\n", 0o644),
        ("etc/cassandra/logback.xml", _LOGBACK, 0o644),
        ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n", 0o644),
        ("etc/group", "root:x:0:\n", 0o644),
    ]


_ENTRYPOINT = r"""#!/bin/sh
# Fits the configuration to the container, as the official image does, then runs what it was asked to.
set -e
if [ "${1#-}" != "$1" ]; then set -- cassandra -f "$@"; fi
if [ "$1" = cassandra ]; then
  address=$(hostname -i | cut -d ' ' -f 1)
  : "${CASSANDRA_LISTEN_ADDRESS:=auto}"
  if [ "$CASSANDRA_LISTEN_ADDRESS" = auto ]; then CASSANDRA_LISTEN_ADDRESS=$address; fi
  : "${CASSANDRA_RPC_ADDRESS:=0.0.0.0}"
  : "${CASSANDRA_BROADCAST_ADDRESS:=$CASSANDRA_LISTEN_ADDRESS}"
  : "${CASSANDRA_BROADCAST_RPC_ADDRESS:=$CASSANDRA_BROADCAST_ADDRESS}"
  : "${CASSANDRA_SEEDS:=$CASSANDRA_BROADCAST_ADDRESS}"
  conf=/etc/cassandra/cassandra.yaml
  sed -i "s/- seeds:.*/- seeds: \"$CASSANDRA_SEEDS\"/" $conf
  for key in listen_address rpc_address broadcast_address broadcast_rpc_address cluster_name num_tokens \
    endpoint_snitch
  do
    name=CASSANDRA_$(echo $key | tr '[:lower:]' '[:upper:]')
    eval "value=\$$name"
    if [ -n "$value" ]; then
      sed -i "/^$key:/d" $conf
      echo "$key: $value" >> $conf
    fi
  done
  if [ -n "$CASSANDRA_DC" ]; then sed -i "s/^dc=.*/dc=$CASSANDRA_DC/" /etc/cassandra/cassandra-rackdc.properties; fi
  if [ -n "$CASSANDRA_RACK" ]; then
    sed -i "s/^rack=.*/rack=$CASSANDRA_RACK/" /etc/cassandra/cassandra-rackdc.properties
  fi
fi
exec "$@"
"""

_CASSANDRA = r"""#!/bin/sh
# Runs Cassandra in the foreground; JVM_OPTS, MAX_HEAP_SIZE and -D arguments as in its own start script.
properties=
while [ $# -gt 0 ]; do
  case "$1" in
    -D) properties="$properties -D$2"; shift ;;
    -D*) properties="$properties $1" ;;
    -f | -R) ;;
    *) echo "unknown argument: $1" >&2; exit 2 ;;
  esac
  shift
done
heap=${MAX_HEAP_SIZE:-1024M}
classes=$(echo /opt/cassandra/lib/*.jar | tr ' ' ':')
for java in /usr/lib/jvm/java-17-openjdk-*/bin/java; do :; done
exec "$java" @MODULES@ -Xms"$heap" -Xmx"$heap" -Xss512k -XX:+UseSerialGC \
  -Dcassandra.config=file:///etc/cassandra/cassandra.yaml \
  -Dcassandra-rackdc.properties=file:///etc/cassandra/cassandra-rackdc.properties \
  -Dlogback.configurationFile=/etc/cassandra/logback.xml \
  -Dcassandra.storagedir=/var/lib/cassandra -Dcassandra.logdir=/var/log/cassandra \
  -Dcassandra.jmx.local.port=7199 -Dcassandra-foreground=yes \
  $JVM_OPTS $properties -cp "$classes" org.apache.cassandra.service.CassandraDaemon
"""

_YAML = """\
cluster_name: 'Test Cluster'
num_tokens: 16
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: SimpleSnitch
authenticator: AllowAllAuthenticator
authorizer: AllowAllAuthorizer
listen_address: localhost
rpc_address: localhost
data_file_directories:
  - /var/lib/cassandra/data
commitlog_directory: /var/lib/cassandra/commitlog
saved_caches_directory: /var/lib/cassandra/saved_caches
hints_directory: /var/lib/cassandra/hints
cdc_raw_directory: /var/lib/cassandra/cdc_raw
commitlog_sync: periodic
commitlog_sync_period: 10000ms
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "127.0.0.1:7000"
"""

_LOGBACK = """\
<configuration>
  <appender name="STDOUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level [%thread] %date{ISO8601} %F:%L - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="STDOUT"/></root>
</configuration>
"""
