# The one place that knows how azekura is built, tested, measured and cleaned.
#
# `make` prints what there is. `make test` passes on a fresh machine with a Rust toolchain, a C and a C++
# compiler. What is optional (another store's tools, fuzzing, licence checks) is used where it is
# installed; where it is not, a line that begins with `notice:` says what was left out.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
# For `make soak`: how long, and which seed is the first.
SECS ?= 600
SEED ?= 1
# For `make fuzz`: how long each target runs.
FUZZ_SECS ?= 60
# For `make mutants`: names of files in mutants/ without their ending; all of them if empty.
MUTANTS ?=
# For `make test`: `full` runs every suite whole, `half` half of its states; otherwise each runs a tenth, or a third of those
# that take long.
SUITES ?= tenth
export SUITES
# For `make bench`: how many records.
BENCH_COUNT ?= 1000000

RESULTS := target/test-results.txt
# Built so that a test decides how threads meet: slower; only this workspace's crates are built once more. One test at a
# time. Clippy is such a wrapper itself.
EXPLORE := RUST_TEST_THREADS=1 RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/.ci/rustc-schedule $(CARGO)
EXPLORE_LINT := RUSTFLAGS="--cfg azekura_explore" CARGO_TARGET_DIR=target/explore $(CARGO)
EXPLORE_TESTS := -p azekura --test explore
FUZZ_TARGETS := $(filter-out fuzz_canary,$(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs))))

.PHONY: help
help: ## Print the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Check the prerequisites; as root, install what Debian has
	@.ci/prerequisites

.PHONY: clients
clients: ## Install clients of other hands, for tests of the server
	@.ci/clients

.PHONY: test
test: setup clients ## Run every test and print the totals (SUITES=full: all states, not a part)
	@mkdir -p $(dir $(RESULTS))
	@echo "== suites: $(if $(filter full half,$(SUITES)),$(SUITES),a tenth of their states and a third of those that take long; SUITES=full make test runs all)"
	@result=0; $(CARGO) test --locked --no-fail-fast 2>&1 | tee $(RESULTS) || result=$$?; \
	$(EXPLORE) test --locked $(EXPLORE_TESTS) 2>&1 | tee -a $(RESULTS) || result=$$?; \
	.ci/totals $(RESULTS); exit $$result

.PHONY: explore
explore: ## Run threads under schedules that seeds decide
	@$(EXPLORE) test --locked $(EXPLORE_TESTS) -- --nocapture

.PHONY: mutants
mutants: ## Plant each fault of mutants/ in a copy and prove that its test fails (MUTANTS="a b")
	@.ci/mutants $(MUTANTS)

.PHONY: mutants-rotating
mutants-rotating: ## The same for six of them, others each day
	@.ci/mutants --rotating 6

.PHONY: lint
lint: setup ## Check form, lints, house rules, documents and licences; change nothing
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	$(EXPLORE_LINT) clippy --locked $(EXPLORE_TESTS) -- -D warnings
	$(CARGO) test --locked -p azekura --test tidy
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps
	cd fuzz && $(CARGO) fmt --check && CARGO_TARGET_DIR=../target/fuzz $(CARGO) check --locked
	.ci/rivals $(CARGO) clippy --locked -p azekura-bench-compare --all-targets -- -D warnings
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
	  $(CARGO) deny --locked check licenses bans sources; \
	else \
	  echo "notice: cargo-deny is not installed: licences, duplicates and sources were not checked"; \
	fi

.PHONY: bench
bench: ## Run the small published benchmark (BENCH_COUNT=1000000)
	@folder=$$(mktemp -d); trap 'rm -r "$$folder"' EXIT; \
	for order in sequential random; do \
	  $(CARGO) run --release --locked -p azekura-cli -- bench record --engine hash \
	    --path "$$folder/$$order.azh" --count $(BENCH_COUNT) --order $$order --ops set,get,remove; \
	done

.PHONY: soak
soak: setup ## Run the suites with one seed after another (SECS=600 SEED=1)
	@.ci/soak $(SECS) $(SEED)

.PHONY: fuzz
fuzz: ## Run each fuzz target (FUZZ_SECS=60 each), and the one that must fail
	@FUZZ_SECS=$(FUZZ_SECS) .ci/fuzz $(FUZZ_TARGETS)

.PHONY: sanitize
sanitize: ## Run concurrent tests under a sanitizer and Miri, where there is a nightly toolchain
	@.ci/sanitize

.PHONY: clean
clean: ## Remove what was built
	$(CARGO) clean
	rm -rf fuzz/target fuzz/corpus fuzz/artifacts
