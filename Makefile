# Everything begins here; `make` lists it. A fresh machine needs Python 3.11+ and make.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# Where it is set, each of the many processes of the tests would compile all of its modules again.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
STAMPS := .venv/stamps
PYTEST := $(BIN)/python -m pytest -q -p tests.quiet_workers
FAST_TESTS = $(wildcard tests/unit tests/transcripts tests/properties tests/simulation)
SOCKET_TESTS = $(wildcard tests/conformance tests/e2e tests/browser)

.PHONY: help setup run test check lint bench dev clean test-engines crash crash-spark sim search wheel compat pictures fast-tests java pyspark jars spark-archive kafka-archive chromium spark spark-jar other-engines

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

# Set-up: each stamp is younger than what it was made from, so a second call does nothing.

$(STAMPS)/env: pyproject.toml uv.lock scripts/setup_python.py
	@python=$$(scripts/find-python) && "$$python" -m scripts.setup_python env
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/engines: $(STAMPS)/env
	@python=$$(scripts/find-python) && "$$python" -m scripts.setup_python engines
	@touch $@

java: | $(STAMPS)/env
	@[ -s .tools/java-home ] && [ -x "$$(cat .tools/java-home)/bin/java" ] || $(BIN)/python -m scripts.setup_java

# PySpark and the jars are of no use without Java, so they are not fetched then.
pyspark: java
	@[ ! -s .tools/java-home ] || $(MAKE) $(STAMPS)/engines -s

jars: pyspark
	@[ ! -s .tools/java-home ] || { $(BIN)/python -m scripts.setup_jars && $(BIN)/python -m scripts.build_jar; }

# For the tests: Spark starts in half the time. It is made while the jars are fetched.
spark-archive: pyspark
	@[ ! -s .tools/java-home ] || $(BIN)/python -m tests.engines.class_archive spark

kafka-archive: jars
	@[ ! -s .tools/java-home ] || $(BIN)/python -m tests.engines.class_archive kafka

# For the tests of the workbench in a browser.
chromium: | $(STAMPS)/env
	@[ -s .tools/chromium ] && [ -x "$$(cat .tools/chromium)" ] || $(BIN)/python -m scripts.setup_chromium

setup: $(STAMPS)/env jars chromium ## set up only: .venv/bin/fencepost is there afterwards

# The jar of the sink itself. Java is required.
spark-jar: $(STAMPS)/env
	@[ -s .tools/java-home ] && [ -x "$$(cat .tools/java-home)/bin/java" ] || $(BIN)/python -m scripts.setup_java --needed
	@$(MAKE) $(STAMPS)/engines -s && $(BIN)/python -m scripts.build_jar --needed

# Only what the Spark pipeline needs: of the jars that are fetched, only Spark's Kafka source.
spark: spark-jar
	@$(BIN)/python -m scripts.setup_jars connector

run: spark ## set up and run the main job: refunds on Spark, exactly once while driver and broker are killed
	@JAVA_HOME="$$(cat .tools/java-home)" $(BIN)/fencepost demo refunds

# Lint and the archives run while jars are fetched. Then cheap questions first. Tests wait as well as compute, so there are
# more of them at a time than cores; which of them may run side by side is in tests/conftest.py.
test: ## set up and pass the tests (twelve minutes on two cores, after the first set-up)
	@echo "make test, stage 1 of 4: set-up and lint"
	@$(MAKE) pyspark
	@$(MAKE) -j3 setup spark-archive kafka-archive lint
	@echo "make test, stage 2 of 4: fast tests"
	@$(MAKE) fast-tests
	@echo "make test, stage 3 of 4: simulation"
	@$(MAKE) sim START=1 JOBS=2 SECONDS=10
	@echo "make test, stage 4 of 4: tests with sockets, Apache Kafka, Spark and a browser (ten minutes)"
	@$(PYTEST) -n 5 --dist loadfile -m "not engines" $(SOCKET_TESTS)

check: $(STAMPS)/env lint ## lint, types and the fast tests
	@$(PYTEST) -n 2 --dist loadfile -m "not slow and not java" $(FAST_TESTS)

lint: $(STAMPS)/env ## ruff, its format, mypy, and the schema of the GitHub workflows
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml \
	  docs/guides/continuous-integration/*.yml

fast-tests: $(STAMPS)/env
	@$(PYTEST) -n 3 --dist loadfile $(FAST_TESTS)

bench: setup ## side by side with Apache Kafka, and with Spark's own sink
	@$(BIN)/python -m benchmarks --results docs/benchmarks.json
	@$(BIN)/python -m benchmarks.ids --results docs/benchmarks.json
	@$(BIN)/python -m benchmarks.partitions --results docs/benchmarks.json
	@$(BIN)/python -m benchmarks.report
	@$(BIN)/python -m benchmarks.spark_sink

dev: $(STAMPS)/env ## [LISTEN=127.0.0.1:9092] a broker with sample transactions, one of them open and one hanging, and the workbench, kept running; its data stays in .dev-data
	@$(BIN)/python -m scripts.dev $(LISTEN)

wheel: spark-jar ## build the wheel into dist/
	@.tools/uv/bin/uv build --quiet --wheel --out-dir dist
	@ls dist/*.whl

# Versions that only these tests need. Tests of a version that cannot be fetched are skipped, with the reason.
other-engines: setup
	@[ ! -s .tools/java-home ] || { $(BIN)/python -m scripts.setup_jars kafka-older avro streams s3a; \
	python=$$(scripts/find-python) && "$$python" -m scripts.setup_python pyspark 4.3.0 && "$$python" -m scripts.setup_python s3; }

test-engines: other-engines kafka-archive spark-archive ## the long tests: clusters of Apache Kafka and Spark with failing machines, other versions, Spark Connect
	@$(MAKE) search ROUNDS=1
	@$(MAKE) sim JOBS=2 SECONDS=120
	@$(BIN)/python -m pytest -v -p tests.quiet_workers -n 1 -m engines $(SOCKET_TESTS)

crash: $(STAMPS)/env ## ROUNDS=50 [SEED=...] kills the broker under load, damages its files, and looks for what it lost; NODES=3 SECONDS=60 stops and pauses nodes instead
ifdef NODES
	@$(BIN)/python -m scripts.crash_nodes --nodes $(NODES) --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))
else
	@$(BIN)/python -m scripts.crash --rounds $(or $(ROUNDS),50) $(if $(SEED),--seed $(SEED))
endif

crash-spark: spark ## ROUNDS=10 [SEED=...] kills driver and Python workers of the Spark pipeline at random moments, again and again
	@JAVA_HOME="$$(cat .tools/java-home)" $(BIN)/python scripts/crash_spark.py --rounds $(or $(ROUNDS),10) $(if $(SEED),--seed $(SEED))

sim: $(STAMPS)/env ## SECONDS=60 [SEED=... VERBOSE=1] the broker on a simulated network, disk and clock, among faults
	@$(BIN)/python -m tests.simulation --seconds $(or $(SECONDS),60) $(if $(START),--start $(START)) \
	  --jobs $(or $(JOBS),1) $(if $(SEED),--seed $(SEED)) $(if $(VERBOSE),-v)

search: $(STAMPS)/env ## ROUNDS=10 the property tests with examples that no run has played before
	@for round in $$(seq $(or $(ROUNDS),10)); do $(PYTEST) -n 2 --hypothesis-profile search tests/properties || exit; done

pictures: setup ## take the pictures of the documents again, in Chromium
	@FENCEPOST_PICTURES=1 $(PYTEST) tests/browser/test_pictures.py

compat: setup ## run real clients and Apache Kafka's tools, and write docs/compatibility.md from what they did
	@$(BIN)/python scripts/compatibility.py

clean: ## remove what was built or downloaded here
	@rm -rf .venv .tools dist build .dev-data* .pytest_cache .ruff_cache .mypy_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
