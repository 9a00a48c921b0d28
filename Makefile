# The front door: `make` lists what there is. Everything is done by CMake (see CMakePresets.json) and by the small
# programs in tools/, which can also be called directly.

jobs := $(shell nproc 2>/dev/null || echo 2)

# Without the tests, unless the folder has them already.
configure_release = if grep -qsx 'FUSEBLOCK_BUILD_TESTS:BOOL=ON' build/CMakeCache.txt && \
  test -e build/CTestTestfile.cmake; then tools/configure release; \
  else tools/configure release -DFUSEBLOCK_BUILD_TESTS=OFF; fi

MAKEFLAGS += --no-print-directory

.DEFAULT_GOAL := help
.PHONY: demo test build lint format bench test-long carry test-gpu bench-gpu clean help
# One target after the other: they share build folders, and each uses all cores by itself.
.NOTPARALLEL:

demo: ## Build the command and run its demo: from nothing in three minutes, without Python
	@tools/install_packages demo
	@$(configure_release)
	@cmake --build build --parallel $(jobs) --target fuseblock_cli
	@build/fuseblock demo

test: ## Set up, build everything, run the C++ and the Python tests; the last line is the verdict
	@tools/test

build: ## Build everything, tests included, into build/
	@tools/install_packages test
	@tools/configure release -DFUSEBLOCK_BUILD_TESTS=ON
	@cmake --build build --parallel $(jobs)

lint: ## Formatting, linters, types, include rules, clang-tidy and the warnings of clang
	@tools/lint

format: ## Format the C++ and Python sources in place
	@tools/format

bench: ## Time the reference blocks, their tails, GroupNorm+SiLU and tiny tensors beside PyTorch; BENCH='--quick' passes options
	@tools/install_packages bench
	@tools/python_env test
	@$(configure_release)
	@cmake --build build --parallel $(jobs) --target fuseblock_c fuseblock_torch
	@tools/bench $(BENCH)

test-long: ## All C++ tests under sanitizers in their long form, every case in Python, the examples against an installed tree
	@tools/test_long

carry: ## What a GPU machine without packages needs of this build, into build/carry
	@tools/carry

test-gpu: ## On a GPU: cases, random blocks, PyTorch operations, sanitizers, recorded; GPU='--filter softmax' passes options
	@tools/test_gpu $(GPU)

bench-gpu: ## On a GPU: norms and tails beside PyTorch and the floor, launches, recorded; GPU='--no-compile' passes options
	@tools/on_gpu benchmarks/gpu/bench.py $(GPU)
	@tools/on_gpu benchmarks/gpu/launch_overhead.py

clean: ## Remove the build folders; .venv stays
	rm -rf build build-asan build-clang build-debug build-fuzz build-tsan

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
