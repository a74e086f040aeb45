#!/usr/bin/env bash
# Fails when what is generated differs from what hack/update-codegen.sh writes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
copy() { mkdir -p "$1" && cp -r pkg/apis pkg/generated deploy/crd docs/api.md "$1"; }
copy "$before/tree"
hack/update-codegen.sh >/dev/null
for path in pkg/apis pkg/generated deploy/crd docs/api.md; do
  if ! diff -ru "$before/tree/$(basename "$path")" "$path"; then
    echo "$path is out of date: run hack/update-codegen.sh and commit what it wrote" >&2
    exit 1
  fi
done
