# Thin: CMakePresets.json and tools/ do the work. `make help` lists the targets.
#
# Variables: SINTER_CUDA=AUTO|ON|OFF, SINTER_WERROR=ON, JOBS=n, CMAKE_ARGS='-D…', PREFIX=/usr/local (install),
# ARGS='…' (bench, demo's benchmark flags go to build/sinter itself), GPU_FILTER='*Gpu*Norm*' (gpu-sanitize).

.DEFAULT_GOAL := build
.PHONY: help setup build debug demo test test-browser gpu-test gpu-sanitize bench sanitize asan tsan fuzz format lint tidy install clean

JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local
export JOBS

options = $(if $(SINTER_WERROR),-DSINTER_WERROR=$(SINTER_WERROR)) $(CMAKE_ARGS)
cuda = $(if $(SINTER_CUDA),-DSINTER_CUDA=$(SINTER_CUDA))
# configure-and-build PRESET, OPTIONS, what to build if not all
cmake = cmake --preset $(1) $(2) && sh tools/timed.sh "build ($(1))" cmake --build --preset $(1) -j $(JOBS) $(3)

help:            ## this list
	@sed -n 's/^\([a-z-]*\): .*## /  make \1|/p' Makefile | awk -F'|' '{printf "%-20s%s\n", $$1, $$2}'

setup:           ## install the Debian/Ubuntu packages that are missing
	@sh tools/setup.sh

build:           ## → build/sinter
	@$(call cmake,release,$(cuda) $(options))

debug:           ## → build-debug/sinter
	@$(call cmake,debug,$(cuda) $(options))

demo: setup      ## set up, build the program, and run eager beside compiled on this machine's GPU or CPU
	@$(call cmake,release,$(or $(cuda),$(shell sh tools/demo.sh cuda build)) $(options),--target sinter)
	@sh tools/demo.sh run build

test: setup build  ## set up, build, and run all tests
	@sh tools/run_tests.sh build

test-browser: build  ## the HTML pages in a headless Chromium (installs chromium, nodejs, npm if missing)
	@sh tools/test_browser.sh build

gpu-test:        ## run the GPU tests on a machine with a GPU and record the result
	@sh tools/gpu_record.sh gpu
	@$(MAKE) --no-print-directory setup build
	@sh tools/gpu_record.sh run build

gpu-sanitize:    ## the GPU tests under compute-sanitizer: memcheck, racecheck, initcheck
	@sh tools/gpu_record.sh gpu
	@$(MAKE) --no-print-directory build
	@sh tools/gpu_sanitize.sh build

bench: build     ## micro-benchmarks (Google Benchmark); ARGS='--benchmark_filter=…'
	@test -x build/bench/sinter_bench || { echo "bench: not built; Google Benchmark is missing (libbenchmark-dev)"; exit 2; }
	@build/bench/sinter_bench $(ARGS)

sanitize: asan   ## all tests under the address and undefined-behaviour sanitizers
asan:
	@$(call cmake,asan,$(options))
	@ASAN_OPTIONS=$${ASAN_OPTIONS:-detect_stack_use_after_return=1} UBSAN_OPTIONS=print_stacktrace=1 \
	  sh tools/run_tests.sh build-asan

tsan:            ## all tests under the thread sanitizer
	@$(call cmake,tsan,$(options))
	@# With much address randomisation the sanitizer's shadow memory finds no place; setarch -R switches it off.
	@fixed=$$(setarch -R true 2>/dev/null && echo "setarch -R"); \
	  TSAN_OPTIONS="suppressions=$(CURDIR)/tools/tsan.supp $$TSAN_OPTIONS" $$fixed sh tools/run_tests.sh build-tsan

fuzz:            ## readers of files, fuzzed with libFuzzer; SECONDS=600 READERS='safetensors manifest'
	@sh tools/fuzz.sh $(or $(SECONDS),600) $(READERS)

format:          ## clang-format every source in place
	@sh tools/lint.sh format

lint:            ## clang-format, the include rule, and clang-tidy on what changed
	@sh tools/lint.sh lint

tidy:            ## clang-tidy on every source
	@sh tools/lint.sh tidy

install: build   ## install to PREFIX (/usr/local): program, library, headers, CMake package
	@cmake --install build --prefix "$(PREFIX)"

clean:           ## remove every build folder
	@rm -rf build build-debug build-asan build-tsan
