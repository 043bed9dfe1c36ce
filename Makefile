# The usual commands, for developers and for CI. CMake and CTest do the work.
#
# demo and test install what is missing (scripts/setup). Recorded test data is in CFLUX_DATA (default:
# ../shared/data). If the default folder is missing, the tests print what they skipped and pass; a folder that
# CFLUX_DATA names must exist and be complete.
SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
ROOT        := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
BUILD       ?= build
JOBS        ?= $(shell nproc)
export CTEST_PARALLEL_LEVEL = $(JOBS)
PREFIX      ?= /usr/local
DESTDIR     ?=
DATA_NAMED  := $(if $(filter undefined,$(origin CFLUX_DATA)),,yes)
CFLUX_DATA  ?= $(ROOT)/../shared/data
FUZZ_SECONDS ?= 600
FUZZ_TARGETS ?=
override CFLUX_DATA := $(abspath $(CFLUX_DATA))
ifneq ($(DATA_NAMED)$(wildcard $(CFLUX_DATA)),)
export CFLUX_DATA
endif

CONFIGURE = cmake -S $(ROOT) -G "Unix Makefiles" -Wno-dev --log-level=NOTICE --no-warn-unused-cli \
                -DCFLUX_POCL_CACHE=$(abspath $(BUILD))/cache/pocl -DCFLUX_SIM_CACHE=$(abspath $(BUILD))/cache/sim
COMPILE   = cmake --build
GCC       = -DCMAKE_C_COMPILER=gcc -DCMAKE_CXX_COMPILER=g++
CLANG     = -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++

MAKEFLAGS     += --no-print-directory
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-all bench docs format check-format asan tsan clang arm macos windows fuzz fuzz-short fuzz-build install deb deb-check debian-roots fuzz-and-packages \
        clean setup-demo setup-test

help:
	@echo 'make demo          build, then train on handwritten digits with the command line'
	@echo 'make test          build with gcc and clang, run the quick tests'
	@echo 'make test-all      every test; quick tests again with sanitizers, on ARM and in another Debian;'
	@echo '                   builds for macOS and Windows, fuzzing, Debian packages'
	@echo 'make bench         build and run the benchmarks, compared with the peers of scripts/bench-peers'
	@echo 'make asan | tsan   quick tests under address+undefined, the thread tests under thread sanitizer'
	@echo 'make clang         quick tests built with clang'
	@echo 'make arm           cross-compiled for 64-bit ARM, the quick tests under qemu'
	@echo 'make macos         cross-compiled for macOS, the files are checked but not run'
	@echo 'make windows       cross-compiled for Windows, the command line and quick tests under Wine'
	@echo 'make fuzz          damaged input for every reader, FUZZ_SECONDS=$(FUZZ_SECONDS) each (FUZZ_TARGETS=names)'
	@echo 'make docs          the pages and the reference as a site, $(BUILD)/site'
	@echo 'make format        clang-format over the tree (check-format: only check)'
	@echo 'make deb           Debian packages; deb-check tries them in a clean root'
	@echo 'make debian-roots  the demo in roots of Debian 12 and 13, the quick tests in that of 13'
	@echo 'make install       PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)'
	@echo 'make clean         remove $(BUILD)/'
	@echo 'test data: CFLUX_DATA=$(CFLUX_DATA)'

setup-demo:
	@$(ROOT)/scripts/setup demo
setup-test:
	@$(ROOT)/scripts/setup test

# A configured tree keeps its configuration, so that `make demo` after `make test` rebuilds nothing.
$(BUILD)/Makefile:
	@$(CONFIGURE) -B $(BUILD) -DCFLUX_TESTS=OFF

demo: setup-demo $(BUILD)/Makefile
	@$(COMPILE) $(BUILD) -j $(JOBS) --target cflux_tool
	@$(ROOT)/scripts/demo $(BUILD)

test: setup-test
	$(CONFIGURE) -B $(BUILD) -DCFLUX_TESTS=ON
	$(COMPILE) $(BUILD) -j $(JOBS)
	$(CONFIGURE) -B $(BUILD)/clang $(CLANG)
	$(COMPILE) $(BUILD)/clang -j $(JOBS) --target libraries
	@$(QUICK)

# CFLUX_PART=K/N takes one of N parts of most tests (scripts/suite).
# The quick tests run again only if a file of the tree is newer than their latest success.
test-all: setup-test
	@$(ROOT)/scripts/setup browser
	@$(ROOT)/scripts/setup slurm
	$(CONFIGURE) -B $(BUILD) -DCFLUX_TESTS=ON
	$(COMPILE) $(BUILD) -j $(JOBS)
	@if $(PASSED); then echo "quick tests: passed before"; else $(QUICK); fi
	@$(MOST_IN_PARTS) $(BUILD) -L full
	$(MAKE) asan tsan arm
	PART=$(CFLUX_PART) $(ROOT)/scripts/cross $(BUILD) $(JOBS) $(BUILD)/tools/cflux/cflux
	$(MAKE) fuzz-and-packages

QUICK  = $(ROOT)/scripts/suite $(BUILD) -L quick && touch $(BUILD)/quick-passed
PASSED = [ -e $(BUILD)/quick-passed ] && [ -z "$$(find $(ROOT) \( -path $(abspath $(BUILD)) -o -path $(ROOT)/.git \) -prune \
             -o -type f -newer $(BUILD)/quick-passed -print -quit)" ]

# Both run at the same time: readers get damaged input for 10 seconds each, however busy the machine is, and installations
# mostly use one core.
fuzz-and-packages: fuzz-build
	@status=0; { $(MAKE) deb-check && PART=$(CFLUX_PART) $(ROOT)/scripts/debian-roots trixie; } >$(BUILD)/debian.log 2>&1 & packages=$$!; \
	    $(MAKE) fuzz-short || status=1; wait $$packages || status=1; cat $(BUILD)/debian.log; exit $$status

# Other builds of the suite leave out the tests that need to run only once (tests/CMakeLists.txt). CFLUX_PART=K/N runs
# a part of the others (scripts/suite): continuous integration runs another quarter for each commit.
AGAIN      = -L quick -LE once
CFLUX_PART ?= 1/1
IN_PARTS   = PART=$(CFLUX_PART) $(ROOT)/scripts/suite
# Tests that run in every part: a change can break them in ways that no other test shows.
MOST_IN_PARTS = ALWAYS='^(conform/full|docs/.*|install/.*|perf/.*|report/.*)$$' $(IN_PARTS)

clang: setup-test
	$(CONFIGURE) -B $(BUILD)/clang $(CLANG)
	$(IN_PARTS) $(BUILD)/clang --build $(AGAIN)

asan: setup-test
	$(CONFIGURE) -B $(BUILD)/asan $(GCC) -DCFLUX_SANITIZE=address,undefined
	$(IN_PARTS) $(BUILD)/asan --build $(AGAIN)

tsan: setup-test
	$(CONFIGURE) -B $(BUILD)/tsan $(GCC) -DCFLUX_SANITIZE=thread
	$(ROOT)/scripts/tsan $(ROOT)/scripts/suite $(BUILD)/tsan --build -L threads

# Runs every reader with damaged input: guided by coverage if clang has libFuzzer, otherwise at random.
FUZZ      = $(if $(shell $(ROOT)/scripts/has-libfuzzer && echo yes), \
                $(CLANG) -DCFLUX_SANITIZE=fuzzer-no-link$(comma)address$(comma)undefined, \
                $(GCC) -DCFLUX_SANITIZE=address$(comma)undefined)
comma    := ,
fuzz-build: setup-test
	$(CONFIGURE) -B $(BUILD)/fuzz $(FUZZ) -DCFLUX_FUZZ=10
	$(COMPILE) $(BUILD)/fuzz -j $(JOBS) --target fuzz_runner
fuzz-short: fuzz-build
	$(ROOT)/scripts/suite $(BUILD)/fuzz -L full -R '^fuzz/'
fuzz: fuzz-build
	$(ROOT)/scripts/fuzz $(BUILD)/fuzz $(FUZZ_SECONDS) $(FUZZ_TARGETS)

arm: setup-test
	PART=$(CFLUX_PART) $(ROOT)/scripts/arm $(BUILD)/arm

# test-all makes short forms of these two (scripts/cross).
macos:
	$(ROOT)/scripts/macos $(BUILD)/macos $(JOBS)

windows: $(BUILD)/Makefile
	@$(COMPILE) $(BUILD) -j $(JOBS) --target cflux_tool
	$(ROOT)/scripts/windows $(BUILD)/windows $(JOBS) $(BUILD)/tools/cflux/cflux

# BENCH_ARGS: options of bench/run.py and parts of names, e.g. BENCH_ARGS="--seconds 2 train/".
bench: setup-demo $(BUILD)/Makefile
	$(CONFIGURE) -B $(BUILD) -DCFLUX_BENCH=ON
	$(COMPILE) $(BUILD) -j $(JOBS) --target bench_runner
	@if command -v python3 >/dev/null; then \
	    python3 -B $(ROOT)/bench/run.py --runner $(BUILD)/bench/bench_runner $(BENCH_ARGS); \
	else \
	    $(BUILD)/bench/bench_runner; \
	fi

docs:
	@$(ROOT)/scripts/setup docs
	@python3 -B $(ROOT)/docs/tools/build_site.py $(BUILD) --strict

format:
	$(ROOT)/scripts/format
check-format:
	$(ROOT)/scripts/format --check

install: setup-demo $(BUILD)/Makefile
	$(CONFIGURE) -B $(BUILD) -DCMAKE_INSTALL_PREFIX=$(PREFIX)
	$(COMPILE) $(BUILD) -j $(JOBS) --target libraries
	DESTDIR=$(DESTDIR) cmake --install $(BUILD)
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

# deb makes Debian packages in $(BUILD)/deb/packages; deb-check installs and uses them in a clean root.
deb: setup-demo
	$(CONFIGURE) -B $(BUILD)/deb -DCMAKE_INSTALL_PREFIX=/usr -DCFLUX_TESTS=OFF -DCFLUX_EXAMPLES=OFF -DCFLUX_BENCH=OFF
	$(COMPILE) $(BUILD)/deb -j $(JOBS)
	@cd $(BUILD)/deb && rm -rf packages && { cpack -B packages >cpack.log 2>&1 || { cat cpack.log; exit 1; }; } && \
	    rm -rf packages/_CPack_Packages
	@ls $(BUILD)/deb/packages/*.deb
deb-check: deb
	$(ROOT)/scripts/deb-check $(BUILD)/deb/packages

# Builds, installs and tests in minimal roots of other releases of Debian.
debian-roots:
	$(ROOT)/scripts/debian-roots

clean:
	rm -rf $(BUILD)
