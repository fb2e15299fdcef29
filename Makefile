# The verbs of the project. `make book` and `make test` work on a fresh machine with Python 3.11 or 3.12, git and make.
.DEFAULT_GOAL := help
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTHON ?= $(shell for p in python3 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' >/dev/null 2>&1 && { echo $$p; break; }; done)
BIND ?= 127.0.0.1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export JUPYTER_PREFER_ENV_PATH := 1
unexport MPLBACKEND
# Threads that wait give their core away, so that other work on the machine does not stall a training cell.
export OMP_WAIT_POLICY := passive
# Chapters and tests compute on small arrays: a second thread only waits.
book slides test quick outputs: export OMP_NUM_THREADS := 1
# The hash of everything that the book is made of.
INPUTS = $(BIN)/python book/ext/nbcachekey.py _config.yml _toc.yml Makefile constraints.txt CITATION.cff codecheck.yml book benchmarks/results notebooks src data proofs
.PHONY: help env book pdf slides proofs quick test outputs readme benchmark release serve lab clean

help: ## this list
	@grep -E '^[a-z]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-10s %s\n", $$1, $$2}'

env: $(READY) ## create the environment in .venv, if needed

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or 3.12 was not found; install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12"; exit 1; }
	@echo "== environment: $(VENV), $$($(PYTHON) --version), versions from constraints.txt (some minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[book,lab,test,workflow]'
	@touch $@

book: $(READY) ## execute the notebooks (quick tier) and render the book to _build/html
	@inputs="$$($(INPUTS)) $(ATTNCONV_REPOSITORY) $(ATTNCONV_BRANCH)"; if [ "$$inputs" = "$$(cat _build/html/.inputs 2>/dev/null)" ]; then \
		echo "== book: nothing changed since it was built"; \
	else \
		echo "== book: training the quick models, unless this version of the code has" && \
		$(BIN)/python -m companion.training.quick && \
		echo "== book: executing notebooks whose code or data changed, then rendering, warnings are errors" && \
		rm -rf _build/.doctrees _build/html && \
		$(BIN)/jupyter-book build -W -n --keep-going . && \
		echo "$$inputs" > _build/html/.inputs; \
	fi
	@echo "== book: open _build/html/index.html, or 'make serve'"

pdf: book ## the whole book as one PDF, _build/pdf/attnconv.pdf (needs Chromium; some minutes)
	@$(BIN)/python tools/print_book.py

slides: $(READY) ## a talk with two live scenes, _build/slides/index.html
	@$(BIN)/python tools/make_slides.py

proofs: $(READY) ## compile the machine-checked theory, and print what each theorem assumes (needs Coq)
	@$(BIN)/python proofs/check.py $(if $(filter required,$(ATTNCONV_PROOFS)),--required)

test: $(READY) ## everything that can fail: lint, types, unit and property tests, notebooks, the strict build of the book
	@echo "== lint"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/codespell *.md book notebooks src benchmarks
	@echo "== types"
	@$(BIN)/basedpyright --level error
	@echo "== proofs"
	@$(MAKE) --no-print-directory proofs
	@echo "== unit and property tests"
	@$(BIN)/python -m pytest -n 2 --ignore tests/rendered
	@echo "== notebooks against their stored outputs"
	@$(BIN)/python -m pytest -n 2 --dist loadfile --nbval-lax --nbval-cell-timeout 300 \
		--nbval-sanitize-with tests/nbval.cfg notebooks
	@$(MAKE) --no-print-directory book
	@echo "== the built pages, as files and in a browser"
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/rendered

quick: $(READY) ## lint, types, and the unit tests without training and browsers: two minutes
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/codespell *.md book notebooks src benchmarks
	@$(BIN)/basedpyright --level error
	@$(BIN)/python -m pytest -q -n 2 -m "not slow" --ignore tests/rendered

outputs: $(READY) ## re-execute the notebooks and store the outputs that the tests compare
	@$(BIN)/python tools/store_outputs.py notebooks/*.ipynb

readme: $(READY) ## write the README's table, from the run records, its picture, and codecheck.yml
	@$(BIN)/python -m attnconv readme
	@$(BIN)/python tools/metadata.py

benchmark: $(READY) ## time and memory: converted networks, vision transformers, training, chapters (over an hour on a CPU)
	@$(BIN)/python benchmarks/conversion.py
	@$(BIN)/python benchmarks/deployment.py
	@$(BIN)/python benchmarks/vit.py
	@$(BIN)/python benchmarks/models.py
	@$(BIN)/python benchmarks/memory.py

release: book ## put together what is published: wheel, book, records, weights, model folders, metadata, checksums
	@$(BIN)/python tools/release.py
	@echo "== release: _build/release; nothing was uploaded"

serve: book ## the book on http://127.0.0.1:8000
	@$(BIN)/python -m http.server --directory _build/html --bind $(BIND) 8000

lab: $(READY) ## open the chapters in JupyterLab, which is installed the first time
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt jupyterlab
	@$(BIN)/jupyter lab notebooks

clean: ## remove what was built (not the environment)
	rm -rf _build .pytest_cache .ruff_cache .hypothesis
