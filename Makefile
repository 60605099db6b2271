# A thin front: each line is a plain command that you could type. README.md has the same for Windows.
PYTHON ?= python3
BIN = .venv/bin

book: .venv/for-book
	$(BIN)/jupyter-book build . --all -q
	@echo
	@echo "The book is in _build/html: open _build/html/index.html, or serve it with"
	@echo "    $(BIN)/python -m http.server 8000 --bind 127.0.0.1 --directory _build/html"
	@echo "and go to http://127.0.0.1:8000/"

test: .venv/for-everything
	$(BIN)/python tools/check_all.py

# Without the course's packages, whose menus are not for readers. As root (in a container) Jupyter wants to be told.
# In a container also: make lab LAB="--ip=0.0.0.0 --no-browser"
lab: .venv/for-lab
	$(BIN)/jupyter trust book/*.ipynb
	$(BIN)/jupyter lab book $(if $(filter 0,$(shell id -u)),--allow-root) $(LAB)

course: .venv/for-course
	$(BIN)/python -m course demo

bake: .venv/for-everything
	$(BIN)/python tools/bake.py

clean:
	rm -rf _build

distclean: clean
	rm -rf .venv

.venv/bin/python:
	$(PYTHON) -c "import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 14) else f'Python 3.11 to 3.14 is needed, this is {v[0]}.{v[1]}; try: make PYTHON=python3.12')"
	$(PYTHON) -m venv .venv --clear || { rm -rf .venv; exit 1; }

.venv/for-book: .venv/bin/python requirements-book.txt constraints.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements-book.txt
	@touch $@

.venv/for-lab: .venv/bin/python requirements-lab.txt constraints.txt pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements-lab.txt
	@touch $@

.venv/for-course: .venv/bin/python course/requirements.txt constraints.txt pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check -r course/requirements.txt
	@touch $@

.venv/for-everything: .venv/bin/python requirements.txt requirements-book.txt requirements-lab.txt course/requirements.txt course/hub/requirements.txt constraints.txt pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements.txt -r course/requirements.txt -r course/hub/requirements.txt
	@touch $@ .venv/for-book .venv/for-lab .venv/for-course

.PHONY: book test lab course bake clean distclean
