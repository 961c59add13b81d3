# What one does with this repository. Needs make and Python 3.11 or newer; each target sets up what
# it needs in .venv, once, with the fastest Python that it finds. `make test PYTHONS=/path/to/python`
# chooses another one.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install test check demo room speech-models browser model chaos chaos-long chaos-speech
.PHONY: bench bench-speech docs lock clean speech up train-translation

PYTHONS ?= python3.14 python3.13 python3.12 python3.11 python3
STEPS ?= 200000

# Where it is set (as in many containers), every process compiles all of its modules again, and the
# demo and the tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
PYTHON := $(VENV)/bin/python
LOCK_VENV := build/lock
PIP_INSTALL := -m pip --disable-pip-version-check install --quiet
# Every package of the workspace, as pip takes it.
PROJECTS := $(wildcard packages/*/pyproject.toml)
EDITABLE := $(PROJECTS:%/pyproject.toml=--editable ./%)
# The clearer voice is built from source; where there is no C compiler, espeak-ng's speaks alone.
PICO = @$(PYTHON) $(PIP_INSTALL) 'ttspico>=0.3.2,<0.4' 2> $(VENV)/pico.log \
	|| echo "no Pico voice (see $(VENV)/pico.log): espeak-ng speaks instead"

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' Makefile

install: $(VENV)/.installed ## Make .venv with the `lingua` command and nothing else

speech: $(VENV)/.speaking ## The same with the engines of speech

up: $(VENV)/.speaking ## Run it here: a scheduler and a node of real engines, until Ctrl-C
	$(VENV)/bin/lingua up

test: $(VENV)/.developed speech-models browser ## Check the code and run every test
	@$(PYTHON) tests/lanes.py 'make --no-print-directory check'

check: $(VENV)/.developed ## Lint, formatting, types, generated pages
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m mypy
	$(PYTHON) -m lingua_scheduler.docs --check

demo: $(VENV)/.speaking ## Translate a real recording, live: a scheduler, a node, your terminal
	$(VENV)/bin/lingua demo

room: $(VENV)/.speaking ## The same with a speaker and two listeners in two languages
	$(VENV)/bin/lingua demo --room

speech-models: $(VENV)/.developed ## Fetch the models and recordings that tests and benchmarks use
	@$(VENV)/bin/lingua models install bench

browser: $(VENV)/.developed ## Fetch the Chromium in which the pages are tested
	@$(PYTHON) scripts/browser.py

model: $(VENV)/.developed ## Run the model tests for long (STEPS=200000)
	LINGUA_MODEL_STEPS=$(STEPS) $(PYTHON) -m pytest -q -m model

chaos: $(VENV)/.installed ## Kill, freeze and cut off everything under load (under 10 minutes)
	$(VENV)/bin/lingua bench chaos

chaos-long: $(VENV)/.installed ## The same in full size (about an hour)
	$(VENV)/bin/lingua bench chaos --long

chaos-speech: $(VENV)/.speaking ## Kill engines, nodes and schedulers while people speak (3 minutes)
	$(VENV)/bin/lingua bench speech --chaos

bench: $(VENV)/.installed ## Measure this machine
	$(VENV)/bin/lingua bench

bench-speech: $(VENV)/.speaking ## Measure real speech: errors, quality, latency
	$(VENV)/bin/lingua bench speech

# Apart from everything else: torch is needed for this alone. Stopped, it goes on where it was.
# `make train-translation TRAINING='--minutes 2'` tries the whole pipeline with a short training.
train-translation: | $(PYTHON) ## Train the English-Spanish networks anew, into build/translation (2 h)
	$(PYTHON) -m venv build/training
	build/training/bin/python $(PIP_INSTALL) --requirement training/translation/requirements.txt
	PYTHON=build/training/bin/python sh training/translation/run.sh build/translation $(TRAINING)

docs: $(VENV)/.installed ## Write the generated pages of docs/
	$(PYTHON) -m lingua_scheduler.docs

lock: | $(PYTHON) ## Pin the newest allowed versions in requirements/dev.txt
	$(PYTHON) -m venv --clear $(LOCK_VENV)
	$(LOCK_VENV)/bin/python $(PIP_INSTALL) 'pip-tools>=7.4,<8'
	$(PYTHON) scripts/lock_input.py > $(LOCK_VENV)/requirements.in
	CUSTOM_COMPILE_COMMAND='make lock' \
		$(LOCK_VENV)/bin/pip-compile --quiet --upgrade --generate-hashes --strip-extras \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-annotate \
		--output-file requirements/dev.txt - < $(LOCK_VENV)/requirements.in

clean: ## Remove everything that was made here
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .run
	find packages tests -name __pycache__ -prune -exec rm -rf {} +

# Of several interpreters the fastest: one built without optimisation costs a fifth more CPU.
$(PYTHON):
	@python="$$(sh scripts/interpreter.sh $(PYTHONS))" || { \
		echo "Python 3.11 or newer with its venv module is needed; tried: $(PYTHONS)" >&2; \
		exit 1; \
	}; \
	echo "making $(VENV) with $$("$$python" --version), $$python"; \
	"$$python" -m venv --clear $(VENV)

$(VENV)/.installed: $(PROJECTS) | $(PYTHON)
	$(PYTHON) $(PIP_INSTALL) $(EDITABLE)
	@touch $@

# The lock is the whole set: with dependencies pip would look for newer ones, which have no hash.
$(VENV)/.developed: $(PROJECTS) requirements/dev.txt | $(PYTHON)
	$(PYTHON) $(PIP_INSTALL) --no-deps --require-hashes --requirement requirements/dev.txt
	$(PYTHON) $(PIP_INSTALL) --no-deps $(EDITABLE)
	$(PICO)
	@touch $@ $(VENV)/.installed $(VENV)/.speaking

# Apart from the others: pip does not find a package of the workspace by name if it is named with an
# extra in the same command.
$(VENV)/.speaking: $(PROJECTS) $(VENV)/.installed
	$(PYTHON) $(PIP_INSTALL) --editable './packages/speech[engines]'
	$(PICO)
	@touch $@
