#!/usr/bin/env bash
# Runs the tests of test/e2e whose names match $1 on a cluster. TIMEOUT bounds them all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source hack/lib.sh

use_cluster
load_operator
deploy_operator
CLUSTER=$CLUSTER go test -tags e2e -count=1 -parallel 4 -timeout "${TIMEOUT:-40m}" -run "${1:-.}" ./test/e2e/...
