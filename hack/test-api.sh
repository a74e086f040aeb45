#!/usr/bin/env bash
# Tests of the operator on an API server without nodes, with the race detector;
# those whose names match $1. The API server is started for them, unless it
# runs, and then stays.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

localcluster() { go -C test/localcluster run . "$@" --api-only; }

if ! localcluster status 2>/dev/null | grep -q 'kube-apiserver *runs'; then
  trap 'localcluster down' EXIT
fi
localcluster up
API_KUBECONFIG=$(localcluster kubeconfig)
export API_KUBECONFIG
go test -tags e2e -race -count=1 -parallel 8 -timeout 10m -run "${1:-.}" ./test/api/...
