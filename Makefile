# Everything a contributor needs. "make test" on a fresh clone builds what it
# needs; see CONTRIBUTING.md.

# Passed on by the targets that name it in their help.
ARGS ?=

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build every command into bin/, with its version inside.
	hack/build.sh

.PHONY: test
test: ## Run the tests that a change can affect; ARGS=--all runs all, ARGS=./sdk/... some.
	hack/test.sh $(ARGS)

.PHONY: stress
stress: ## Run the tests of changed packages ten times on a busy machine, or those in ARGS.
	hack/stress.sh $(ARGS)

.PHONY: demo
demo: ## Run the operator and its providers on this machine, with ARGS.
	go run ./e2e/cmd/demo $(ARGS)

.PHONY: bench
bench: ## Measure speed and cost against the targets, with ARGS.
	go run ./e2e/cmd/bench $(ARGS)

.PHONY: fuzz
fuzz: ## Run the fuzz targets, for the time and the targets in ARGS.
	hack/fuzz.sh $(ARGS)

.PHONY: generate
generate: ## Make all that is generated, or the things in ARGS.
	hack/generate.sh $(ARGS)

.PHONY: verify
verify: ## Run all checks, or those in ARGS; changes nothing.
	hack/verify.sh $(ARGS)

.PHONY: fmt
fmt: ## Format Go code.
	hack/tool.sh golangci-lint fmt

.PHONY: lint
lint: ## Run the linters, with ARGS.
	hack/packages.sh | xargs hack/tool.sh golangci-lint run $(ARGS)

.PHONY: bazel
bazel: ## Build everything with Bazel, tests included.
	hack/bazel.sh build $(if $(CI),--config=ci) //...
