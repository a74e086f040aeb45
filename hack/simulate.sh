#!/usr/bin/env bash
# Runs seeds of the simulation of elections: how many in each kind of cluster,
# from which seed on, and in which kinds (a regexp, such as required-1-of-3).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

CGO_ENABLED=0 go test ./pkg/election -count=1 -timeout=0 -v -run "TestSimulation/${3:-.}" -seeds "${1:-10000}" -first "${2:-1}" \
  | grep -vE '^(=== |    --- PASS|--- PASS|PASS)'
