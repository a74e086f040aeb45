# Shared by the scripts beside it; source it after `cd` to the top.
# shellcheck shell=bash

IMAGE=${IMAGE:-docker.io/pgop/postgres-operator:dev}

say() { printf '\n\033[1m==> %s\033[0m\n' "$*"; }

# use_cluster makes kubectl talk to the cluster that KUBECONFIG names, if one
# answers there, else to the local cluster, which it starts.
use_cluster() {
  if [ -n "${KUBECONFIG:-}" ] && [ "$KUBECONFIG" != "$(local_kubeconfig)" ]; then
    if ! command -v kubectl >/dev/null; then
      echo "KUBECONFIG is set, and there is no kubectl on PATH: install it, or unset KUBECONFIG to use the local cluster" >&2
      return 1
    fi
    if ! kubectl version >/dev/null 2>&1; then
      echo "KUBECONFIG=$KUBECONFIG names no cluster that answers: correct it, or unset it to use the local cluster" >&2
      return 1
    fi
    CLUSTER=given
    return
  fi
  make -s cluster-up
  KUBECONFIG=$(local_kubeconfig)
  PATH="$(dirname "$KUBECONFIG")/bin:$PATH"
  export KUBECONFIG PATH
  CLUSTER=local
}

local_kubeconfig() { make -s kubeconfig; }

# load_operator builds the operator and puts its image where the cluster finds
# it. A cluster that was given pulls IMAGE by itself: push it there first.
load_operator() {
  make -s build
  if [ "$CLUSTER" = local ]; then
    mkdir -p dist
    go -C test/localcluster run ./images/cmd/image operator \
      --binary "$PWD/bin/postgres-operator" --name "$IMAGE" --out "$PWD/dist/operator.tar"
    go -C test/localcluster run . load "$PWD/dist/operator.tar"
  else
    echo "using the image $IMAGE, which the cluster must be able to pull (make image, then push it)"
  fi
}

# deploy_operator applies deploy/operator.yaml and waits until the new operator
# runs. A binary that has changed restarts it although the tag has not.
deploy_operator() {
  local digest
  digest=$(sha256sum bin/postgres-operator | cut -c1-16)
  sed -e "s|docker.io/pgop/postgres-operator:dev|$IMAGE|g" \
      -e "s|^    metadata:\$|&\n      annotations: {pgop.dev/build: \"$digest\"}|" deploy/operator.yaml |
    kubectl apply -f - >/dev/null
  kubectl -n postgres-operator rollout status deployment/postgres-operator --timeout=120s
  kubectl wait --for=condition=Established crd/postgresclusters.pgop.dev --timeout=60s >/dev/null
}
