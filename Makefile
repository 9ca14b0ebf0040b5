# `make demo` and `make test` are all a bare clone needs: both install what is missing first.
# PYTHON=/path/to/python chooses an interpreter, ARGS="--quick" are options of the demo or of pytest.

PYTHON ?=
ARGS ?=
SETUP = PYTHON='$(PYTHON)' sh tools/setup.sh
BENCHMARKS ?= codec kernel broker produce poll_arrow tls spark_source spark_triggers spark_writer spark_pipeline groups rebalance region region_many spark_region assignors streams_assignment simulation
CHECK = .venv/bin/python tools/check.py

.PHONY: docs explore-regions plant-regions plant-streams sweep-regions torture simulate mutants explore help demo test test-system record bench lint types imports clean

help:
	@echo 'make demo     real flights, one region of three Spark applications (ARGS=--quick: no Java; --no-region)'
	@echo 'make test     style, types, import contracts and the steady tests (ARGS: options of pytest)'
	@echo 'make test-system  the tests with Spark, Apache Kafka, other clients and kills (ARGS=--failed)'
	@echo 'make mutations  break each rule in turn, and see that its test notices (ARGS="--rule C24")'
	@echo 'make record   write what a live Kafka answers into the dialogues (ARGS: families)'
	@echo 'make bench    every benchmark, beside its peers (BENCHMARKS="kernel" for one, ARGS=--json)'
	@echo 'make simulate groups under faults in virtual time, until stopped; also: make mutants, make explore'
	@echo 'make torture  kill processes at random, each record counted (ARGS="region --kills 20", region-spark,'
	@echo '              streams, spark; without ARGS: what there is)'
	@echo 'make sweep-regions  every pair of faults at every pair of moments in a small simulated region'
	@echo 'make explore-regions  every order of events of small regions; also: make plant-regions,'
	@echo '              make plant-streams'
	@echo 'make docs     the documentation as a site, with the API reference, in build/site'
	@echo 'make lint     style alone; also: make types, make imports'
	@echo 'make clean    remove what was built and installed'

demo:
	@$(SETUP) $(if $(findstring --quick,$(ARGS)),quick,demo)
	@.venv/bin/kohort demo $(ARGS)

test:
	@$(SETUP) test
	@$(CHECK) $(ARGS)

test-system:
	@$(SETUP) test
	@$(CHECK) system $(ARGS)

mutations:
	@$(SETUP) test
	@.venv/bin/python tools/mutations.py $(ARGS)

record:
	@$(SETUP) test
	@.venv/bin/python -m tests.coordinator_dialogues.record $(ARGS)
	@.venv/bin/python -m tests.member_dialogues.record $(ARGS)

simulate:
	@$(SETUP) test
	@.venv/bin/kohort simulate --runs 0 --keep tests/seeds $(ARGS)

torture:
	@$(SETUP) test
	@.venv/bin/python -m tests.torture $(ARGS)

sweep-regions:
	@$(SETUP) test
	@.venv/bin/python tools/sweep_regions.py $(ARGS)

explore-regions:
	@$(SETUP) test
	@.venv/bin/python tools/explore_regions.py $(ARGS)

plant-regions:
	@$(SETUP) test
	@.venv/bin/python tools/plant_regions.py $(ARGS)

plant-streams:
	@$(SETUP) test
	@.venv/bin/python tools/plant_streams.py $(ARGS)

mutants explore:
	@$(SETUP) test
	@.venv/bin/python tools/$@.py $(ARGS)

docs:
	@$(SETUP) quick
	@.venv/bin/python tools/documentation.py

lint:
	@$(CHECK) style format

types imports:
	@$(CHECK) $@

bench:
	@$(SETUP) test
	@missed=; for name in $(BENCHMARKS); do \
	  .venv/bin/python benchmarks/$$name.py $(ARGS) || missed="$$missed $$name"; \
	done; test -z "$$missed" || { echo "missed a target or failed:$$missed"; exit 1; }

clean:
	rm -rf .venv build src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src -name '*.so' -delete
