#!/usr/bin/env bash
# Puts the operator, as built from this tree, on the cluster.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source hack/lib.sh

use_cluster
load_operator
deploy_operator
echo "KUBECONFIG=$KUBECONFIG"
