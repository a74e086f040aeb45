#!/usr/bin/env bash
# Writes what is generated from pkg/apis: deepcopy functions, the typed client
# with its apply configurations, listers and informers, the CRD and docs/api.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

module=github.com/pgop/postgres-operator
go mod download k8s.io/code-generator
codegen=$(go list -m -f '{{.Dir}}' k8s.io/code-generator)
# shellcheck source=/dev/null
source "$codegen/kube_codegen.sh"

kube::codegen::gen_helpers --boilerplate hack/boilerplate.go.txt pkg/apis

kube::codegen::gen_client \
  --with-watch --with-applyconfig \
  --boilerplate hack/boilerplate.go.txt \
  --output-dir pkg/generated --output-pkg "$module/pkg/generated" \
  pkg/apis

go tool controller-gen crd:crdVersions=v1,maxDescLen=2000 paths=./pkg/apis/... output:crd:dir=deploy/crd
# No marker says of a map's values that they may be null: the value of a parameter
# may, so that the operator refuses it instead of the API server dropping it.
sed -i 's/^\( *\)x-kubernetes-preserve-unknown-fields: true$/\1nullable: true\n&/' deploy/crd/*.yaml

go run ./hack/apidoc >docs/api.md.new
mv docs/api.md.new docs/api.md
