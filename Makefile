# Needs: Python 3.11 or newer and make. Everything else is put into .venv and build/; `make test` wants a JDK and Maven, Prometheus's
# promtool and Chromium too, which it installs with apt where it runs as root.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
JARS := build/jars
FORMAT_JARS := build/format-jars
RCK_JARS := build/rck-jars
OLDER_SPARK := build/pyspark-3.5
PYPAIMON := build/pypaimon
DUCKDB := build/duckdb
PROMETHEUS := build/prometheus
CHROMIUM := build/chromium
GENERATOR := build/client-generator
PYTEST := $(BIN)/python -m pytest
DIST := dist

export DEBIAN_FRONTEND := noninteractive
# Tests start thousands of programs: what Python has compiled is kept, also where the environment says otherwise.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := check
.PHONY: demo check test test-all older-spark coverage prove mutants bench lint proto docs outputs dist binary clean

demo: $(VENV)/.demo
	$(BIN)/amoro demo

# Three tiers, each of which runs the tests of the one before it (tests/tiers.py); lint runs beside them.
# More workers than two cores: tests also wait for processes, disks and clocks.
WORKERS := $(PYTEST) -n 3
PURE := $(addprefix tests/,unit store cli rpc admin api formats tools)
# One process compiles the tests and what they import; otherwise each worker of a clean clone would.
COMPILE := $(PYTEST) -qq --collect-only
# $(call beside,TARGETS,COMMAND): fails if the command or one of the targets does, which run beside it.
beside = @mkdir -p build; $(MAKE) --no-print-directory $(1) >build/beside.log 2>&1 & targets=$$!; \
  echo '$(2)'; status=0; $(2) || status=$$?; wait $$targets && tail -n 1 build/beside.log || { cat build/beside.log; status=1; }; exit $$status

check: $(VENV)/.test
	$(call beside,lint,$(COMPILE) $(PURE) >build/collected.log 2>&1; $(WORKERS) --tier=check --timeout=120 $(PURE))
	@$(BIN)/python -m tests.measure

test:
	@$(MAKE) --no-print-directory -j 4 $(VENV)/.spark-test $(JARS)/.fetched $(PROMETHEUS)/.unpacked $(CHROMIUM)/.installed
	$(call beside,lint,$(COMPILE) tests >build/collected.log 2>&1; $(WORKERS) --tier=test --timeout=120 tests)

# Random tests begin with a fresh seed, which the report's header prints. DURATIONS=write rewrites tests/durations.tsv; do so on an idle machine.
test-all:
	@$(MAKE) --no-print-directory -j 4 $(VENV)/.spark-test $(JARS)/.fetched $(PROMETHEUS)/.unpacked $(CHROMIUM)/.installed \
	  $(OLDER_SPARK)/.installed $(FORMAT_JARS)/.fetched $(RCK_JARS)/.fetched $(PYPAIMON)/.installed $(DUCKDB)/.installed $(GENERATOR)/.installed
	$(call beside,lint older-spark,$(WORKERS) --tier=all --seed=fresh $(if $(DURATIONS),--write-durations) tests)

# What the Spark backend asks most of Spark, with Spark 3.5, from its own directory.
older-spark: $(OLDER_SPARK)/.installed
	PYSPARK_SERIES=3.5 PYTHONPATH=$(CURDIR)/$(OLDER_SPARK) $(PYTEST) \
	  tests/spark_backend/test_backend.py tests/spark_backend/test_procedures.py \
	  tests/spark_backend/test_clustering.py::test_a_group_with_deletes_becomes_the_files_that_a_standalone_optimizer_makes_of_it \
	  tests/spark_backend/test_clustering.py::test_executions_that_die_in_each_stage_are_repeated_and_the_files_are_the_same

# Line coverage of a tier, of processes that tests start as well.
TIER ?= test
coverage:
	@$(MAKE) --no-print-directory -j 4 $(VENV)/.spark-test $(JARS)/.fetched $(PROMETHEUS)/.unpacked $(CHROMIUM)/.installed
	$(WORKERS) --tier=$(TIER) --cov --cov-report= tests
	$(BIN)/python -m coverage report --skip-covered --sort=cover

# The large figures, for as long as BUDGET says: it goes on where it ended, and adds up on docs/proof.md.
BUDGET ?= 60m
prove: $(VENV)/.spark-test $(JARS)/.fetched $(CHROMIUM)/.installed $(OLDER_SPARK)/.installed $(FORMAT_JARS)/.fetched $(PYPAIMON)/.installed
	$(BIN)/python -m tests.prove --budget $(BUDGET)

# Mutation testing of matching, validation, commit, of what decides about deletes, of clustering, and of what follows rows
# beside other writers: a seeded sample of each within an hour; the figures go to docs/mutants.md and docs/mutants-of-*.md.
SAMPLE ?= 300
SEED ?= 1
mutants: $(VENV)/.test
	$(BIN)/python -m tests.mutants --sample $(SAMPLE) --seed $(SEED)
	$(BIN)/python -m tests.mutants --part maintenance --sample $(SAMPLE) --seed $(SEED) --least 90
	$(BIN)/python -m tests.mutants --part clustering --sample $(SAMPLE) --seed $(SEED) --least 90
	$(BIN)/python -m tests.mutants --part following --sample $(SAMPLE) --seed $(SEED) --least 90
	$(BIN)/python -m tests.mutants.named

# The bars of performance: prints each figure beside its bar, and asserts nothing (tests/bench/README.md).
bench: $(VENV)/.test
	$(BIN)/python -m tests.bench

lint: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry amoro_core amoro_optimizer amoro_cli
	$(BIN)/hadolint Dockerfile

proto: $(VENV)/.test
	$(BIN)/python proto/generate.py

# Reference pages and schemas from the code, then the site in build/site; `make outputs` runs the commands that it shows.
docs: $(VENV)/.test
	$(BIN)/python docs/generate.py
	$(BIN)/python -m docs.reference_pages
	$(BIN)/python -m mkdocs build --strict

outputs: $(VENV)/.test
	$(BIN)/python -m tests.docs.session

# The sdist, and the wheel made from it, with the schemas that are generated.
dist: $(VENV)/.test
	rm -rf $(DIST)
	$(BIN)/python docs/generate.py
	$(BIN)/python -m build --outdir $(DIST) .

# One file that runs wherever there is the Python of this version: it holds everything else.
binary: dist
	$(BIN)/pex $(DIST)/amoro-*.whl --console-script amoro --venv --output-file $(DIST)/amoro.pyz

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis mutants

# --- Python -----------------------------------------------------------------------------------------------------------

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  package=$$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'); \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing $$package"; \
	    apt-get -qq update && apt-get -qq install -y --no-install-recommends "$$package" >/dev/null; \
	  else \
	    echo "Python's venv module is missing; install it with: sudo apt-get install $$package" >&2; exit 1; \
	  fi; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { echo "making $(VENV): about 20 s"; $(PYTHON) -m venv --clear $(VENV); }
	@$(PIP) install 'uv>=0.9,<1' || echo "uv cannot be installed: pip does its work, more slowly"
	@touch $@

# $(call install,PYTHON) ARGUMENTS: with uv where it is, else with pip.
install = installer="$(PIP) --python $(1) install"; [ ! -x $(BIN)/uv ] || installer="$(BIN)/uv pip install --quiet --python $(1)"; $$installer

# One stamp for each set of extras.
$(VENV)/.demo: EXTRAS = demo
$(VENV)/.test: EXTRAS = test
$(VENV)/.spark-test: EXTRAS = test,spark-test
$(VENV)/.demo $(VENV)/.test $(VENV)/.spark-test: $(VENV)/.made pyproject.toml
	@echo "installing amoro[$(EXTRAS)] into $(VENV): a minute or two the first time, seconds with cached packages"
	@began=$$(date +%s); $(call install,$(BIN)/python) --editable '.[$(EXTRAS)]' && echo "installed in $$(($$(date +%s) - began)) s"
	@touch $@ $(if $(filter %spark-test,$@),$(VENV)/.test)

# PySpark 3.5 alone: what else the tests need is in the environment.
$(OLDER_SPARK)/.installed: $(VENV)/.made
	@echo "installing PySpark 3.5 into $(OLDER_SPARK)"
	@rm -rf $(OLDER_SPARK)
	@$(call install,$(BIN)/python) --target $(OLDER_SPARK) 'pyspark==3.5.*'
	@touch $@

# Writes and reads Paimon tables; it wants older packages than ours.
$(PYPAIMON)/.installed: $(VENV)/.made
	@echo "installing pypaimon into $(PYPAIMON)"
	@$(BIN)/python -m venv --clear $(PYPAIMON)
	@$(call install,$(PYPAIMON)/bin/python) 'pypaimon==2.1.0'
	@touch $@

# DuckDB with its extension for Iceberg catalogs, of the newest version that PyPI has both of.
$(DUCKDB)/.installed: $(VENV)/.made
	@echo "installing DuckDB with its Iceberg extension into $(DUCKDB)"
	@rm -rf $(DUCKDB)
	@$(call install,$(BIN)/python) --target $(DUCKDB) duckdb==1.5.5 \
	  duckdb-extension-iceberg==1.5.5 duckdb-extension-avro==1.5.5 duckdb-extension-httpfs==1.5.5
	@touch $@

# The generator of clients wants an older typer than ours.
$(GENERATOR)/.installed: $(VENV)/.made
	@echo "installing the generator of clients into $(GENERATOR)"
	@$(BIN)/python -m venv --clear $(GENERATOR)
	@$(call install,$(GENERATOR)/bin/python) 'openapi-python-client>=0.29,<1'
	@touch $@

# What apt installs comes one after the other, beside Python's packages.

# --- Java -------------------------------------------------------------------------------------------------------------

# Without a JDK or Maven, and no right to install them, Spark's tests are skipped by name; with CI=true that is an error.
$(JARS)/.fetched: tests/java/pom.xml | $(VENV)/.made
	@tests/java/install-jdk || { [ "$(CI)" != true ] && echo "Spark's tests will be skipped" >&2 && exit 0; exit 1; }
	@if command -v java >/dev/null && command -v mvn >/dev/null; then \
	  echo "fetching Iceberg's runtime for Spark and its REST server into $(JARS)"; \
	  rm -rf $(JARS) && mvn -B -q -Dstyle.color=never -f tests/java/pom.xml package && touch $@; \
	fi

# Those of Hudi, for Spark 3.5, and of Paimon, a present and an old one: 170 MB, for `make test-all` alone.
$(FORMAT_JARS)/.fetched: | $(JARS)/.fetched
	@if command -v mvn >/dev/null; then \
	  echo "fetching the jars of Hudi and Paimon into $(FORMAT_JARS)"; \
	  for jar in org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0 org.apache.paimon:paimon-bundle:1.4.2 \
	    org.apache.paimon:paimon-bundle:0.9.0; do \
	    mvn -B -q -Dstyle.color=never org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
	      -Dartifact=$$jar -DoutputDirectory=$(CURDIR)/$(FORMAT_JARS) || exit 1; \
	  done; touch $@; \
	fi

# Iceberg's compatibility kit of REST catalogs and what runs it, beside its REST server: for `make test-all` alone.
$(RCK_JARS)/.fetched: | $(JARS)/.fetched
	@if command -v mvn >/dev/null; then \
	  echo "fetching Iceberg's compatibility kit into $(RCK_JARS)"; \
	  for jar in org.apache.iceberg:iceberg-open-api:1.11.0:jar:tests org.apache.iceberg:iceberg-api:1.11.0:jar:tests \
	    org.junit.platform:junit-platform-console-standalone:1.12.2 org.assertj:assertj-core:3.27.3 \
	    org.awaitility:awaitility:4.3.0 org.mockito:mockito-core:4.11.0 net.bytebuddy:byte-buddy:1.15.11 \
	    org.hamcrest:hamcrest:2.1; do \
	    mvn -B -q -Dstyle.color=never org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
	      -Dartifact=$$jar -DoutputDirectory=$(CURDIR)/$(RCK_JARS) || exit 1; \
	  done; touch $@; \
	fi

# --- Prometheus -------------------------------------------------------------------------------------------------------

# As with Java: without promtool, and no right to install it, the tests of alerts are skipped by name, or fail with CI=true.
$(PROMETHEUS)/.unpacked: tests/prometheus/install-promtool | $(JARS)/.fetched
	@mkdir -p $(PROMETHEUS)
	@tests/prometheus/install-promtool $(PROMETHEUS) && touch $@ \
	  || { [ "$(CI)" != true ] && echo "The tests of alerts will be skipped" >&2 && exit 0; exit 1; }

# --- Chromium ---------------------------------------------------------------------------------------------------------

# As with promtool: without Chromium the tests of pages in a browser are skipped by name, or fail with CI=true.
$(CHROMIUM)/.installed: tests/browser/install-chromium | $(PROMETHEUS)/.unpacked
	@mkdir -p $(CHROMIUM)
	@tests/browser/install-chromium && touch $@ \
	  || { [ "$(CI)" != true ] && echo "The tests of pages in a browser will be skipped" >&2 && exit 0; exit 1; }
