#!/usr/bin/env bash
# From a bare machine to a three-instance cluster: a row is written through
# the rw Service and read through the ro Service.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source hack/lib.sh

# client runs psql in the first instance with the login of the application.
client() { # SERVICE SQL
  local uri
  uri=$(kubectl get secret shop-app -o jsonpath='{.data.uri}' | base64 -d)
  kubectl exec -i shop-1 -c postgres -- env "PGURI=${uri/shop-rw/shop-$1}" \
    sh -c 'exec psql -X -q -At -d "$PGURI" -f -' <<<"$2"
}

say "A Kubernetes cluster"
use_cluster
kubectl get nodes

say "The operator"
load_operator
deploy_operator

say "kubectl apply -f example/postgrescluster.yaml"
started=$(date +%s)
kubectl apply -f example/postgrescluster.yaml
kubectl wait --for=condition=Ready postgrescluster/shop --timeout=300s
echo "three instances after $(($(date +%s) - started)) s"

say "kubectl get pg"
kubectl get pg
kubectl get pods -l pgop.dev/cluster=shop -L pgop.dev/role -o wide

say "kubectl describe pg shop"
kubectl describe pg shop

say "A row, written through shop-rw and read through shop-ro"
client rw "create table if not exists visits (id bigserial primary key, at timestamptz default now(), server inet default inet_server_addr());
           insert into visits default values;"
for _ in $(seq 50); do
  rows=$(client ro "select count(*) from visits" 2>/dev/null || echo 0)
  [ "$rows" = 0 ] || break
  sleep 0.2
done
client ro "select format('row %s, written on %s at %s, read on %s', id, server, at, inet_server_addr()) from visits order by id desc limit 1"

say "Look around"
cat <<EOT
  export KUBECONFIG=$KUBECONFIG PATH=$(dirname "$(command -v kubectl)"):\$PATH
  kubectl get pg
  kubectl exec -it shop-1 -- psql app
  kubectl delete pg shop        # its volumes stay, and the same manifest adopts them
  make cluster-down             # removes the local cluster
EOT
