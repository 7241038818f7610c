# Every target sets up what it needs; `make demo` and `make test` are the two to know.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.muster-ready
AT_ONCE := $(MAKE) --no-print-directory --jobs 2
export SPARK_LOCAL_IP ?= 127.0.0.1
# where it is set, each of the hundreds of commands that tests start would recompile the project
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo classes compiled test check types rules test-fast test-spark test-clients test-java test-kafka test-cluster-kafka test-foreign test-s3 test-readers test-cluster test-matrix test-web test-install soak-web sim faults bench release docs lock clean

help:            ## show this list
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/: .*## /\t/' | expand -t 14

setup: $(READY)  ## virtual environment, locked dependencies, Java, Delta's jars

$(READY): requirements.lock pyproject.toml tools/setup.py spark_jobs/jars.lock
	@$(PYTHON) tools/setup.py

demo: $(READY)   ## run the main job on real input
	@$(BIN)/muster demo

classes: $(READY)
	@$(BIN)/python -m tests.support.spark.class_archive

compiled: $(READY) # pytest's own form of the modules, which each of its processes would make
	@$(BIN)/pytest --collect-only -q > /dev/null 2>&1 || true

test: $(READY) ## lint, types, layers, and all tests, three at a time
	@$(AT_ONCE) types rules classes compiled
	@$(BIN)/pytest -n 3 --dist worksteal --durations 12

check: $(READY)  ## lint, types, layers and commit subjects only
	@$(AT_ONCE) types rules

types: $(READY)
	@$(BIN)/mypy

rules: $(READY)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python tools/mirror.py --check
	@$(BIN)/python tools/commits.py

test-fast: $(READY)  ## tests that need no Spark
	@$(BIN)/pytest -m "not spark"

test-spark: classes ## tests that need Spark, the largest too
	@MUSTER_LONG=1 $(BIN)/pytest -m spark

test-clients: $(READY) ## groups of real Kafka clients for Python, the longer lives too
	@MUSTER_LONG=1 $(BIN)/pytest tests/clients/test_groups.py tests/clients/test_classic_clients.py \
	  tests/clients/test_shards.py \
	  tests/clients/test_upgrade.py tests/deploy/test_versions.py tests/wire/test_commands.py tests/wire/test_hostile.py \
	  tests/member/test_processes.py tests/push/test_processes.py \
	  tests/watcher/test_watch_killed.py tests/watcher/test_watched_store.py tests/watcher/test_watched_maintenance.py \
	  tests/watcher/test_inferred_reasons.py tests/backup/test_backup.py

test-shards: $(READY) ## nodes that share a store of shards, killed and frozen, as processes
	@MUSTER_LONG=1 $(BIN)/pytest tests/shards

test-s3: $(READY)  ## Spark on a store in S3, on a server of its own: needs Maven Central once
	@$(BIN)/muster setup --s3
	@MUSTER_S3=1 $(BIN)/pytest tests/spark/test_s3.py

test-readers: $(READY) ## a store and an output in DuckDB, on a disk and in S3: needs PyPI once
	@MUSTER_READERS=1 $(BIN)/pytest tests/storage/test_duckdb.py

test-cluster: $(READY) ## Spark clusters that lose executors, and Spark Connect: needs PyPI once
	@MUSTER_CLUSTER=1 $(BIN)/pytest tests/cluster

test-matrix: $(READY) ## the wheel on each Spark and Python that it allows: needs PyPI once
	@$(PYTHON) tools/matrix.py

test-java: $(READY) ## groups of Java clients, and Kafka's tools: needs a JDK, and Maven Central once
	@MUSTER_JAVA=1 $(BIN)/pytest tests/clients/test_java.py tests/clients/test_tools.py \
	  tests/clients/test_classic_clients.py tests/clients/test_shards.py tests/clients/test_tokens.py

test-kafka: $(READY) ## the same lives on Kafka 4.4.0 and on Muster: needs Java, Maven, Maven Central once
	@MUSTER_KAFKA=1 $(BIN)/pytest tests/clients/test_against_kafka.py tests/clients/test_real_kafka.py \
	  tests/clients/test_gateway.py \
	  tests/clients/test_watch_kafka.py tests/clients/test_watch_clients.py tests/clients/test_watch_outage.py \
	  tests/member/test_against_kafka.py tests/streams

test-cluster-kafka: $(READY) ## a node of a cluster of two brokers of Kafka 4.4.0: as `make test-kafka`, and Go, Node.js
	@MUSTER_KAFKA=1 $(BIN)/pytest tests/clients/test_cluster_kafka.py tests/clients/node \
	  tests/clients/test_written_log.py

test-foreign: $(READY) ## groups of clients for Go and JavaScript: needs Go, Node.js, their registries once
	@MUSTER_FOREIGN=1 $(BIN)/pytest tests/clients/test_classic_clients.py tests/clients/test_shards.py

test-install: $(READY) ## the wheel, and the image's steps, in an environment of its own, serve Kafka clients
	@MUSTER_INSTALL=1 $(BIN)/pytest tests/test_extras.py tests/deploy

test-web: $(READY) ## the pages in Chromium, which it installs where it can
	@$(BIN)/python tools/browser.py
	@MUSTER_WEB=1 $(BIN)/pytest tests/web/test_browser.py

soak-web: $(READY) ## pages left open while a group rebalances: 5 minutes; memory, lag, heartbeats
	@$(BIN)/python -m tests.web.soak

sim: $(READY)    ## simulate coordinators under faults: 21,000 seeds, of groups and stores of each kind
	@MUSTER_LONG=1 $(BIN)/pytest tests/assignors/test_twins.py tests/assignors/test_properties.py \
	  tests/assignors/test_exact_judge.py tests/assignors/test_cases.py tests/assignors/blocks \
	  tests/sim tests/core/test_drains.py tests/core/test_partition_owners.py \
	  tests/history/test_frames.py tests/history/test_followed_log.py \
	  tests/watcher/test_batches_and_commits.py tests/storage/test_store_settings.py \
	  tests/storage/test_store_modes.py tests/storage/remote/test_unreachable_store.py \
	  tests/web/test_access.py tests/engines tests/trace/test_trace_fuzz.py tests/assignors/test_group_spec.py \
	  tests/assignors/test_many_rules.py tests/assignors/incremental tests/core/test_span_columns.py \
	  tests/storage/test_record_log.py tests/storage/test_member_rows.py tests/wire/test_codec.py \
	  tests/watcher/test_unread_groups.py tests/runtime/test_batch_heartbeats.py
	@$(BIN)/python -m tests.sim
	@$(BIN)/python -m tests.sim --classic --seeds 5000
	@$(BIN)/python -m tests.sim --mixed --seeds 2000
	@$(BIN)/python -m tests.sim --objects --seeds 2000
	@$(BIN)/python -m tests.sim --shards --seeds 2000

faults: $(READY) ## kill, stop, fill up and damage what is real, and write docs/design/faults.md
	@$(BIN)/python -m tests.faults

bench: $(READY)  ## measure, print tables, write docs/design/benchmarks.md
	@$(BIN)/python -m benchmarks

release: $(READY) ## wheel and sdist, the same bytes twice, a bill of materials, tried on each Python: needs PyPI once
	@$(BIN)/python tools/release.py

docs: $(READY)   ## build the documentation site into build/docs; a warning is an error
	@rm -rf build/docs
	@$(BIN)/sphinx-build -M html docs build/docs -q -W --keep-going -n
	@echo build/docs/html/index.html

lock: $(READY)   ## resolve dependencies again (needs uv)
	uv pip compile --quiet --no-header --universal --python-version 3.11 --generate-hashes \
	  --group dev --extra kafka --extra oauth --extra otel --extra plot --extra spark --extra web pyproject.toml --output-file requirements.lock
	uv pip compile --quiet --no-header --universal --python-version 3.11 --generate-hashes \
	  --extra kafka --extra oauth --extra otel --extra uvloop --extra web pyproject.toml \
	  --output-file deploy/requirements.lock
	uv pip compile --quiet --no-header --universal --python-version 3.11 --generate-hashes \
	  --group clients --output-file tests/clients/clients.lock
	uv pip compile --quiet --no-header --universal --python-version 3.11 --generate-hashes \
	  --group connect --output-file tests/cluster/connect.lock
	uv pip compile --quiet --no-header --universal --python-version 3.11 --generate-hashes \
	  --group readers --output-file tests/storage/readers.lock
	uv pip compile --quiet --no-header --universal --python-version 3.11 --generate-hashes \
	  --group release --output-file tools/release.lock

clean:           ## remove what set-up and tests made here (the cache stays)
	rm -rf $(VENV) build dist demo-output *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db
