# The two commands that matter: `make demo` and `make test`. Both bring up the
# local cluster of test/localcluster, or use the one that KUBECONFIG names.

IMAGE    ?= docker.io/pgop/postgres-operator:dev
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
RUN      ?= .
SEEDS    ?= 10000
FIRST    ?= 1
MODE     ?=
ROUNDS   ?= 0
SEED     ?= 1
FAULTS   ?=
SHORT_FAULTS := postmaster-kill|agent-kill|node-cut|switchover
LOCAL    := go -C test/localcluster run .
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.7.0

export IMAGE

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

.PHONY: demo
demo: ## From a bare machine to a three-instance cluster with a row in it
	hack/demo.sh

.PHONY: test
test: lint test-unit test-api e2e faults-short ## Every test

.PHONY: build
build: ## The operator's binary, bin/postgres-operator
	CGO_ENABLED=0 go build -ldflags "-s -w -X main.version=$(VERSION)" -o bin/postgres-operator ./cmd/postgres-operator

.PHONY: test-unit
test-unit: ## Tests that need no cluster
	hack/test-unit.sh

.PHONY: simulate
simulate: ## Simulate elections: SEEDS=<n> [FIRST=<seed>] [MODE=async|required-1-of-3|…]
	hack/simulate.sh '$(SEEDS)' '$(FIRST)' '$(or $(MODE),.)'

.PHONY: test-api
test-api: ## Tests on an API server without nodes; RUN=<regexp> names some
	hack/test-api.sh '$(RUN)'

.PHONY: e2e
e2e: ## Tests on a cluster; RUN=<regexp> names some
	hack/e2e.sh '$(RUN)'

.PHONY: faults
faults: ## Faults under load, one of each kind; ROUNDS=n SEED=s: random; MODE=async|required|preferred; FAULTS=<regexp>
	hack/faults.sh -rounds '$(ROUNDS)' -seed '$(SEED)' -mode '$(or $(MODE),async)' -faults '$(FAULTS)'

.PHONY: faults-short
faults-short: ## A few faults under load
	hack/faults.sh -faults '$(SHORT_FAULTS)'

.PHONY: bench
bench: ## Measure a cluster's start, and memory; prints figures
	hack/bench.sh

.PHONY: bench-backup
bench-backup: ## Measure archiving, base backups and restores on a local S3 server; prints figures
	go test ./pkg/backup ./pkg/instance -p 1 -run NONE -bench . -benchtime 1x -timeout 30m

.PHONY: lint
lint: ## go vet, staticcheck, gofmt
	hack/lint.sh $(STATICCHECK)

.PHONY: generate
generate: ## Rewrite what is generated from pkg/apis
	hack/update-codegen.sh

.PHONY: verify
verify: ## Fail if what is generated is out of date
	hack/verify-codegen.sh

.PHONY: cluster-up
cluster-up: ## Start the local cluster
	$(LOCAL) up

.PHONY: cluster-down
cluster-down: ## Remove the local cluster
	$(LOCAL) down

.PHONY: kubeconfig
kubeconfig: ## Print the path of the local cluster's kubeconfig (use make -s)
	@$(LOCAL) kubeconfig

.PHONY: deploy
deploy: ## Put the operator, as built from this tree, on the cluster
	hack/deploy.sh

.PHONY: image
image: ## The operator's image, with Docker
	docker build --build-arg VERSION=$(VERSION) -t $(IMAGE) .
