#!/usr/bin/env bash
# gofmt, go vet and staticcheck over every module. $1 is staticcheck with its version.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

unformatted=$(git ls-files -co --exclude-standard '*.go' | grep -v '^pkg/generated/' | xargs -r gofmt -l)
if [ -n "$unformatted" ]; then
  echo "not formatted; run gofmt -w on:" >&2
  echo "$unformatted" >&2
  exit 1
fi
go vet -tags e2e ./...
go run "$1" -tags e2e ./cmd/... ./example/... ./hack/... ./pkg/apis/... ./pkg/backup/... ./pkg/cluster/... ./pkg/controller/... ./pkg/election/... \
  ./pkg/instance/... ./pkg/instanceapi/... ./pkg/pki/... ./pkg/postgres/... ./pkg/specs/... ./test/...
go -C test/localcluster vet ./...
