# Commands for developers. Everything is built in one profile, so Arrow compiles once. Tests add checks to our own crates, also in the
# Python package; `make python` tests the package as users get it.

CARGO ?= cargo
CLI := target/release/adjoin
TEST := $(CARGO) test --release --locked --workspace --config checked.toml --quiet

.PHONY: demo test check python promises promises-search rules hardness bench bench-full tables tables-joins tables-search tables-live tables-serve tables-flash stress interleavings build tools

build: tools
	$(CARGO) build --release --locked --workspace --quiet

tools:
	@command -v $(CARGO) >/dev/null || { echo "adjoin needs Rust: install rustup, it takes the version in rust-toolchain.toml"; exit 2; }
	@command -v cc >/dev/null || { echo "adjoin needs a C compiler (for Zstandard): on Debian, apt-get install gcc"; exit 2; }

# The main job on the bundled sample: near-duplicates among the descriptions of 24,000 packages.
# Builds without the server, which it does not need.
demo: tools
	$(CARGO) build --release --locked -p adjoin-cli --no-default-features --quiet
	@mkdir -p demo
	$(CLI) join fixtures/sample.parquet --id-column name --min-similarity 0.9 --memory 256MB \
	    -o demo/pairs.parquet --stats demo/stats.json --force
	@$(CLI) join fixtures/sample.parquet --id-column name --min-similarity 0.99 --memory 256MB -o - --quiet > demo/closest.csv
	@echo; echo "some of the closest, by name:"
	@tail -n +2 demo/closest.csv | sort -t, -k3,3gr -k1,1 | awk -F, 'NR % 30 == 1 && NR < 300 { printf "  %.4f  %-45s %s\n", $$3, $$1, $$2 }'
	@echo; echo "all pairs lie in demo/pairs.parquet, what the run did in demo/stats.json"

test: tools
	$(TEST)
	ADJOIN_CHECKED=1 python/test.sh

# The Python package as a wheel in target/wheels, installed and tested in its own environment.
python: tools
	python/test.sh

check: tools
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --locked --workspace --all-targets --quiet -- -D warnings

# Compares exact joins of whole real sets with brute force, then promised recalls with reached ones, with enough samples for a
# verdict. Continues after an interruption, in target/promises. Needs ADJOIN_DATA.
promises: build
	bench/promises.sh $(CLI)
	$(CARGO) run --release --locked --quiet -p adjoin --example promises -- "$(ADJOIN_DATA)" target/promises
	$(CARGO) run --release --locked --quiet -p adjoin --example promises -- "$(ADJOIN_DATA)" target/promises parts

# Measures how often searches of real sets reach the promised recall: stores and indexes, held-out rows as queries, calibrations by
# many seeds. Continues after an interruption, in target/promises. Needs ADJOIN_DATA.
promises-search: build
	$(CARGO) run --release --locked --quiet -p adjoin --example promises -- "$(ADJOIN_DATA)" target/promises search
	$(CARGO) run --release --locked --quiet -p adjoin --example promises -- "$(ADJOIN_DATA)" target/promises indexes

# Counts the pairs that each rule compares to reach a recall, on whole real sets, next to the figures of a study. Needs ADJOIN_DATA.
rules: build
	$(CARGO) run --release --locked --quiet -p adjoin --example promises -- "$(ADJOIN_DATA)" target/promises rules

# Counts the pairs that an exact join compares on generated vectors and on real ones. Needs ADJOIN_DATA.
hardness: build
	bench/hardness.sh $(CLI)

# Compares adjoin with other tools: one round in at most an hour (bench), or medians of three (bench-full). Continues after an
# interruption, in target/bench. Real sets need ADJOIN_DATA, peers PEERS_PYTHON, DiskJoin's code DISKJOIN; the output names those that
# are missing.
bench bench-full: build
	$(CARGO) build --release --locked --workspace --quiet --example kernel_rates --example read_rates
	python3 bench/bench.py $(CLI) --rounds $(if $(filter bench-full,$@),3,1)

# Writes docs/benchmarks.md: the comparison, and the figures of DiskJoin's evaluation again. Takes hours. Needs ADJOIN_DATA.
tables: build
	$(CARGO) build --release --locked --workspace --quiet --example kernel_rates --example read_rates
	{ cat bench/benchmarks.head.md; python3 bench/bench.py $(CLI) --rounds 3; python3 bench/tables.py $(CLI); } > target/benchmarks.md
	mv target/benchmarks.md docs/benchmarks.md

# Writes docs/benchmarks-joins.md: other joins, two sets, new rows, filters, and nearest neighbors against faiss and hnswlib.
# Needs ADJOIN_DATA, and PEERS_PYTHON with numpy, pyarrow, faiss-cpu and hnswlib.
tables-joins: build
	$(CARGO) build --release --locked --workspace --quiet --example other_joins
	{ python3 bench/joins.py $(CLI); python3 bench/nearest.py $(CLI); } > target/benchmarks-joins.md
	mv target/benchmarks-joins.md docs/benchmarks-joins.md

# Writes docs/benchmarks-search.md: searches of graph indexes against DiskANN (its program: DISKANN) and the peers of PEERS_PYTHON, in
# children of the memory cgroup PEERS_CGROUP, and the gain of each idea of a walk. Continues after an interruption. Charts need
# matplotlib in CHARTS_PYTHON, filters numpy and pyarrow in PEERS_PYTHON, real sets ADJOIN_DATA.
tables-search: build
	$(CARGO) build --release --locked --workspace --quiet --example read_rates --example layouts
	python3 bench/search.py $(CLI) > target/benchmarks-search.md
	mv target/benchmarks-search.md docs/benchmarks-search.md

# Writes docs/benchmarks-live.md: the effect of inserts and deletes on a graph (the experiments of FreshDiskANN again). Continues
# after an interruption, in target/bench. Needs ADJOIN_DATA, and for hnswlib PEERS_PYTHON with numpy.
tables-live: build
	$(CARGO) build --release --locked --workspace --quiet --example updates --example live
	python3 bench/live.py $(CLI) > target/benchmarks-live.md
	mv target/benchmarks-live.md docs/benchmarks-live.md

# Writes docs/benchmarks-serve.md: the cost of serving a store (the experiments of CALL again). Continues after an interruption.
tables-serve: build
	$(CARGO) build --release --locked --workspace --quiet --example serve
	python3 bench/serve.py $(CLI) > target/benchmarks-serve.md
	mv target/benchmarks-serve.md docs/benchmarks-serve.md

# Writes docs/benchmarks-flash.md: the figures of NDSearch again, jobs on all devices, and MQSim (its program: MQSIM). Continues
# after an interruption. Real sets need ADJOIN_DATA, charts matplotlib in CHARTS_PYTHON. FLASH=--large adds 10 million vectors,
# FLASH="--disk FOLDER" the disk of that folder.
tables-flash: build
	python3 bench/flash.py $(CLI) $(FLASH) > target/benchmarks-flash.md
	mv target/benchmarks-flash.md docs/benchmarks-flash.md

# Random tests, many times as long; faults with every listed loss of unsynced data; hundreds of killed processes; 2,000 runs of
# commands with budgets from the smallest upward; 200 histories of merges with their recall checked by brute force; an hour of a
# server under all loads at once.
stress: tools interleavings
	ADJOIN_FUZZ_CASES=300000 PROPTEST_CASES=5000 ADJOIN_EVERY_FAULT=1 ADJOIN_MEMORY_RUNS=2000 ADJOIN_SOAK_SECONDS=3600 $(TEST)

# Runs the threads of a collection in thousands of orders. A model checker replaces the system's locks and chooses the order, so this
# is a separate build.
interleavings: tools
	RUSTFLAGS="--cfg adjoin_shuttle" $(CARGO) test --release --locked --config checked.toml --quiet --target-dir target/shuttle \
	    -p adjoin --test suite -- live::interleavings
