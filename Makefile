# Trireme: `make demo` trains on real text on two ranks; `make test` builds and runs every test.
# Each target does what is missing and nothing that is not. tools/setup.sh installs; tools/build.sh compiles.
SHELL := /bin/bash
PRESET ?= release
DEMO_STEPS ?= 300
TASK ?= language

.PHONY: help setup build test test-all sanitize demo check tidy format docs bench clean

help:            ## list the targets
	@grep -E '^[a-z-]+: .*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:[^#]*## /|/' | awk -F'|' '{printf "  make %-9s %s\n", $$1, $$2}'

setup:           ## install Debian packages and libtorch where they are missing
	@tools/setup.sh

build: setup     ## build build/$(PRESET)/bin/trireme
	@tools/build.sh $(PRESET) trireme_program

test:            ## build everything and run the tests
	@tools/setup.sh test
	@tools/build.sh $(PRESET) all
	@tools/test.sh $(PRESET) $(TEST_OPTIONS)

test-all: TEST_OPTIONS = --all
test-all: test   ## the same with the long tests

sanitize: setup  ## tests of memory and threads under the address and the thread sanitizer
	@tools/sanitize.sh

demo: build      ## train a small Llama on real text on two ranks; TASK=vision: a ViT on icons
	@tools/demo.sh build/$(PRESET)/bin/trireme $(DEMO_STEPS) $(TASK)

check: setup     ## layers, mirror, file length, links, commit messages, clang-format
	@tools/check.sh

tidy:            ## clang-tidy on every source of the library
	@tools/setup.sh tidy
	@tools/check.sh --tidy all

format: setup    ## clang-format every source
	@tools/format.sh

docs:            ## API reference of the public headers, in build/docs/html
	@tools/setup.sh docs
	@tools/docs.sh

bench: build     ## train_vs_pytorch: tokens/s, memory and start-up beside PyTorch and DeepSpeed
	@tools/bench.sh

clean:           ## remove the build (not .venv, not runs/)
	@rm -rf build
