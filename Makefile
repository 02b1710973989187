# Thin wrappers: everything happens in scripts/, which also works where make is missing.
.PHONY: help run test test-compiled test-spark-cluster check bench build kills spark-kills pipeline-kills longest-turn chaos cluster-chaos docs setup clean mutate-raft mutate-durability mutate-cluster

help: ## what can be done here
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "%-20s%s\n", $$1, $$2 }'

run: ## a tour, a Spark pipeline, and a broker to try commands on
	@scripts/run $(ARGS)

test: ## set up what is missing and run every test
	@scripts/test

test-compiled: ## every test on compiled modules; needs a C compiler
	@scripts/test-compiled $(ARGS)

test-spark-cluster: ## the tests of Spark on a Spark of several processes
	@scripts/test-spark-cluster $(ARGS)

check: ## the quick part: style, types, layers, fast tests
	@scripts/check

bench: ## the benchmarks, one table and one JSON line each
	@scripts/bench $(ARGS)

kills: ## kill a publisher 500 times, and check its receipts
	@scripts/kills $(ARGS)

spark-kills: ## kill what a Spark query needs, and count what came out
	@scripts/spark-kills $(ARGS)

longest-turn: ## how long a broker is held up by what is heavy
	@scripts/longest-turn $(ARGS)

pipeline-kills: ## kill running pipelines, and compare what came out
	@scripts/pipeline-kills $(ARGS)

chaos: ## a broker under every verb and many faults, and a judge
	@scripts/chaos $(ARGS)

cluster-chaos: ## three nodes under every verb, killed, paused and cut off
	@scripts/chaos --cluster $(ARGS)

build: ## wheel, sdist and flintmq.pyz, into dist/ (ARGS=--compiled)
	@scripts/build $(ARGS)

docs: ## the docs as a site, in docs/site (ARGS=--serve shows it)
	@scripts/docs $(ARGS)

setup: ## make .venv with everything a developer needs
	@scripts/setup dev

mutate-raft: ## break the Raft core, and see that the tests notice
	@scripts/setup dev
	@.venv/bin/python scripts/mutate-raft

mutate-durability: ## break what keeps messages, and see that the tests notice
	@scripts/setup dev
	@.venv/bin/python scripts/mutate-durability $(ARGS)

mutate-cluster: ## break what a cluster is made of, and see that it is noticed
	@scripts/setup dev
	@.venv/bin/python scripts/mutate-cluster $(ARGS)

clean: ## remove .venv and caches
	rm -rf .venv .compiled .mypy_cache .ruff_cache .pytest_cache .hypothesis
