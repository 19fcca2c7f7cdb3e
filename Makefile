# Commands for developers. Everything is built in one profile, so Arrow compiles once. Tests add checks to our own crates,
# also in the Python package; `make python` tests the package as users get it.

CARGO ?= cargo
CLI := target/release/adjoin
# Without --workspace, since `make -C lab test` runs the tests of the laboratory.
TEST := $(CARGO) test --release --locked --config checked.toml

.PHONY: demo test test-aarch64 check python wheel wheels docs fuzz stress interleavings build dist tools

build: tools
	$(CARGO) build --release --locked

# The program for a release, in target/dist: smaller, and without symbols. Linking takes minutes on one core.
dist: tools
	$(CARGO) build --profile dist --locked -p adjoin-cli

tools:
	@command -v $(CARGO) >/dev/null || { echo "adjoin needs Rust: install rustup, it takes the version in rust-toolchain.toml"; exit 2; }
	@command -v cc >/dev/null || { echo "adjoin needs a C compiler (for Zstandard): on Debian, apt-get install gcc"; exit 2; }

# The main job on the bundled sample: near-duplicates among the descriptions of 24,000 packages.
# Builds without the server, which it does not need.
demo: tools
	@test -x $(CLI) || echo "building adjoin: the first time takes some minutes"
	$(CARGO) build --release --locked -p adjoin-cli --no-default-features
	@mkdir -p demo
	@echo; echo "finding the near-duplicates among the descriptions of 24,000 packages:"
	$(CLI) join fixtures/sample.parquet --id-column name --min-similarity 0.9 --memory 256MB \
	    -o demo/pairs.parquet --stats demo/stats.json --force
	@$(CLI) join fixtures/sample.parquet --id-column name --min-similarity 0.99 --memory 256MB -o - --quiet > demo/closest.csv
	@echo; echo "some of the closest, by name:"
	@tail -n +2 demo/closest.csv | sort -t, -k3,3gr -k1,1 | awk -F, 'NR % 30 == 1 && NR < 300 { printf "  %.4f  %-45s %s\n", $$3, $$1, $$2 }'
	@echo; echo "all pairs are in demo/pairs.parquet, the statistics in demo/stats.json"

test: tools
	$(TEST) -- --quiet
	ADJOIN_CHECKED=1 python/test.sh

# The Python package as a wheel in target/wheels, installed and tested in its own environment.
python: tools
	python/test.sh

# The wheels of Linux as they are published, in dist/, for x86-64 and AArch64. On x86-64, needs
# `rustup target add aarch64-unknown-linux-gnu`.
wheels: tools
	.ci/wheels

# A wheel for this platform or for TARGET, in dist/, with the notices of all crates in it.
wheel: tools
	python3 .ci/notices > python/THIRD-PARTY-NOTICES.md
	maturin build --release --locked --manifest-path python/Cargo.toml --out dist $(if $(TARGET),--target $(TARGET))

# The documentation site, in site/.
docs:
	docs/site/build.sh

check: tools
	.ci/features
	.ci/packages
	.ci/lint
	.ci/install
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --locked --workspace --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --release --locked --workspace --no-deps --quiet

# Random tests, many times as long; faults with every listed loss of unsynced data; hundreds of killed processes; 2,000
# runs of commands with budgets from the smallest upward; 200 histories of merges with their recall checked by brute
# force; an hour of a server under all loads at once.
stress: tools interleavings
	ADJOIN_FUZZ_CASES=300000 PROPTEST_CASES=5000 ADJOIN_EVERY_FAULT=1 ADJOIN_MEMORY_RUNS=2000 ADJOIN_SOAK_SECONDS=3600 $(TEST) -- --quiet

# Random inputs to everything that reads bytes from outside, for some hours.
fuzz: tools
	ADJOIN_FUZZ_CASES=3000000 $(TEST) -p adjoin --test fuzz -- --quiet

# The tests of the kernels for AArch64 in an emulator: a processor without products of bytes, then one that must have them.
# Needs qemu-user, gcc-aarch64-linux-gnu and `rustup target add aarch64-unknown-linux-gnu`.
test-aarch64: tools
	for run in cortex-a72: max:neon; do \
	    ADJOIN_REQUIRE=$${run#*:} \
	    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
	    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu -cpu $${run%:*}" \
	    $(TEST) --target aarch64-unknown-linux-gnu -p adjoin-kernels -- --quiet || exit; \
	done

# Runs the threads of a collection in thousands of orders. A model checker replaces the system's locks and chooses the
# order, so this is a separate build.
interleavings: tools
	RUSTFLAGS="--cfg adjoin_shuttle" $(CARGO) test --release --locked --config checked.toml --quiet --target-dir target/shuttle \
	    -p adjoin --test suite -- collection::interleavings
