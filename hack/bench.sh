#!/usr/bin/env bash
# Measures on a cluster and prints the figures; arguments go to test/bench.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source hack/lib.sh

use_cluster
load_operator
deploy_operator
go run ./test/bench "$@"
