# Everything begins here; `make` lists it. A fresh machine needs Python 3.11+ and make.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
STAMPS := .tools/stamps
PYTEST := $(BIN)/python -m pytest -q
FAST_TESTS = $(wildcard tests/unit tests/transcripts tests/properties)
SOCKET_TESTS = $(wildcard tests/conformance tests/e2e)

.PHONY: help setup run test check lint bench dev clean test-engines crash crash-spark sim wheel fast-tests java jars spark

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

# Set-up: each stamp is younger than what it was made from, so a second call does nothing.

$(STAMPS)/env: pyproject.toml uv.lock scripts/setup_python.py
	@python=$$(scripts/find-python) && "$$python" scripts/setup_python.py env
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/engines: $(STAMPS)/env
	@python=$$(scripts/find-python) && "$$python" scripts/setup_python.py engines
	@touch $@

java: | $(STAMPS)/env
	@[ -s .tools/java-home ] && [ -x "$$(cat .tools/java-home)/bin/java" ] || $(BIN)/python scripts/setup_java.py

# PySpark and the jars are of no use without Java, so they are not fetched then.
jars: java
	@[ ! -s .tools/java-home ] || { $(MAKE) $(STAMPS)/engines -s && $(BIN)/python scripts/setup_jars.py; }

setup: $(STAMPS)/env jars ## set up only: .venv/bin/fencepost is there afterwards

# What the pipeline on Spark needs, and no more: Java it cannot do without, and of the jars only Spark's Kafka source.
spark: $(STAMPS)/env
	@[ -s .tools/java-home ] && [ -x "$$(cat .tools/java-home)/bin/java" ] || $(BIN)/python scripts/setup_java.py --needed
	@$(MAKE) $(STAMPS)/engines -s && $(BIN)/python scripts/setup_jars.py connector

run: spark ## set up and run the main job: refunds on Spark, exactly once while driver and broker are killed
	@JAVA_HOME="$$(cat .tools/java-home)" $(BIN)/fencepost demo refunds

# Cheap questions first: a typo is reported in seconds. Tests with sockets run one at a time, in a worker, so
# that one which must be killed does not take the others along.
test: setup lint fast-tests ## set up and pass the tests (about fifteen minutes at most)
	@$(if $(SOCKET_TESTS),$(PYTEST) -n 1 -m "not engines" $(SOCKET_TESTS))

check: $(STAMPS)/env lint ## lint, types and the fast tests
	@$(PYTEST) -n 2 -m "not slow and not java" $(FAST_TESTS)

lint: $(STAMPS)/env ## ruff, and mypy on src
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary

fast-tests: $(STAMPS)/env
	@$(PYTEST) -n 2 $(FAST_TESTS)

bench: setup ## side by side with Apache Kafka, and with Spark's own sink
	@$(BIN)/python -m benchmarks
	@$(BIN)/python -m benchmarks.spark_sink

dev: $(STAMPS)/env ## a broker on 127.0.0.1:9092 with sample transactions, kept running; its data stays in .dev-data
	@$(BIN)/python scripts/dev.py

wheel: $(STAMPS)/env ## build the wheel into dist/
	@.tools/uv/bin/uv build --quiet --wheel --out-dir dist
	@ls dist/*.whl

test-engines: setup ## the long tests: the sink on every Kafka and transaction version, Spark Connect, the demos on Apache Kafka
	@$(PYTEST) -n 1 -m engines $(SOCKET_TESTS)

crash: ## not yet: ROUNDS=... kills the broker under load, again and again
	@echo "make $@: not here yet; it will kill the broker under load, ROUNDS times" >&2; exit 2

crash-spark: spark ## ROUNDS=10 [SEED=...] kills the driver of the Spark pipeline at random moments, again and again
	@JAVA_HOME="$$(cat .tools/java-home)" $(BIN)/python scripts/crash_spark.py --rounds $(or $(ROUNDS),10) $(if $(SEED),--seed $(SEED))

sim: ## not yet: SEED=... a simulated cluster with faults
	@echo "make $@: not here yet; it will run a simulated cluster with faults from a SEED" >&2; exit 2

clean: ## remove what was built or downloaded here
	@rm -rf .venv .tools dist build .dev-data .pytest_cache .ruff_cache .mypy_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
