#!/usr/bin/env bash
# Tests that need no cluster, with the race detector. The agent's tests run a
# real PostgreSQL, which Debian has.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ ! -x /usr/lib/postgresql/15/bin/postgres ] && command -v apt-get >/dev/null; then
  echo "installing postgresql-15 for the agent's tests"
  # The package would start a server of its own otherwise.
  mkdir -p /etc/postgresql-common
  [ -e /etc/postgresql-common/createcluster.conf ] || echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends postgresql-15 >/dev/null
fi
# The agent's tests take the longest: they start hundreds of servers, and wait for
# them most of the time. In memory no server waits for the disk.
if [ -w /dev/shm ] && [ "$(df --output=avail -B1G /dev/shm | tail -1)" -ge 6 ]; then
  # The servers run as another user, and the paths of their sockets must be short.
  TMPDIR=$(mktemp -d -p /dev/shm uXXXX)
  chmod 711 "$TMPDIR"
  trap 'rm -rf "$TMPDIR"' EXIT
  export TMPDIR
fi
go test -race -short -parallel 4 -timeout 20m ./cmd/... ./hack/... ./pkg/... ./test/faults/...
# What -short leaves out: pure functions over thousands of cases.
go test -timeout 20m ./pkg/cluster ./pkg/election
go -C test/localcluster test ./...
