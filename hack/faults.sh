#!/usr/bin/env bash
# Runs the fault suite on the local cluster; arguments are flags of test/faults,
# such as -rounds 20 -seed 3 -mode required -faults 'node-.*'.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source hack/lib.sh

use_cluster
if [ "$CLUSTER" != local ]; then
  echo "skipping the fault suite: it reaches into the machine below Kubernetes, so it needs the local cluster; unset KUBECONFIG to use it"
  exit 0
fi
load_operator
deploy_operator
CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o bin/ledger ./test/faults/ledger
go -C test/localcluster run ./images/cmd/image binary \
  --binary "$PWD/bin/ledger" --name docker.io/pgop/ledger:dev --path /ledger --out "$PWD/dist/ledger.tar"
go -C test/localcluster run . load "$PWD/dist/ledger.tar"
CLUSTER=$CLUSTER go test -tags e2e -count=1 -v -timeout 0 -run '^(TestFaults|TestKindsHaveStrikes)$' ./test/faults "$@"
