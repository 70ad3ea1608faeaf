# What a developer runs. Needs Python 3.11 or newer, git and make; everything else goes into .venv.
PYTHON3 := $(shell for p in python3 python3.13 python3.12 python3.11; do $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin
.PHONY: help venv dev demo demo-kill demo-spark test test-all lint types fmt protos reference bench soak check commits release

# $(## …) is a variable that nobody sets: `make help` finds the text, and no shell sees it.
help: ; @sed -nE 's/^([a-z-]+):.*## ([a-z][^)]*).*/\1\t\2/p' Makefile | expand -t 12
venv: .venv/.dev .venv/.demo .venv/.spark ## make .venv with everything a developer needs
dev: .venv/.core ; @exec $(BIN)/ternmq dev $(## run a NameServer and a broker in one process)
demo: .venv/.demo ; @$(BIN)/python examples/flights/demo.py $(## send and consume 336,776 flights, then check them)
demo-kill: .venv/.demo ; @$(BIN)/python examples/flights/demo.py --kill $(## the same with one consumer killed in the middle)
demo-spark: .venv/.demo .venv/.spark ; @$(BIN)/python examples/flights/spark_demo.py $(## summarize the flights with Spark as they come, then check that)
test: venv ; @$(BIN)/python tools/run_tests.py test $(## lint, mypy, tests of every kind on one Python)
test-all: venv ; @$(BIN)/python tools/run_tests.py rest $(## what test leaves out: containers, networks, Spark that dies, other Pythons, new examples)
lint: .venv/.dev ; @$(BIN)/ruff check . && $(BIN)/ruff format --check . $(## look for mistakes and for another layout)
types: .venv/.dev .venv/.spark ; @$(BIN)/python tools/check_types.py $(## mypy strict and pyright strict over every file)
fmt: .venv/.dev ; @$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format . $(## lay the code out)
protos: .venv/.dev ; @$(BIN)/python protos/generate.py $(## write the contracts' Python code)
reference: .venv/.dev ; @$(BIN)/python tools/write_reference.py $(## write the tables of settings and metrics into docs/reference)
bench: .venv/.dev ; @$(BIN)/python benchmarks/bench.py $(COMPARE:%=--compare %) $(ROUNDS:%=--rounds %) $(ONLY:%=--only %) $(QUICK:%=--quick) $(## measure; COMPARE=COMMIT prints ratios to that commit, ONLY="push pull", ROUNDS=5, QUICK=1)
soak: venv ; @TESTS_EXAMPLES=soak $(BIN)/python -m pytest -n 2 --timeout 0 -o faulthandler_timeout=0 tests/property tests/simulation tests/crash $(## property, simulation and crash tests, many more repetitions)
check: .venv/.dev .venv/.spark ; @$(BIN)/python tools/run_tests.py check $(## the quick part of test: run it before every commit)
commits: .venv/.dev ; @$(BIN)/python tools/check_commits.py $(## check titles and bodies of the commits since the last release)
release: .venv/.dev ; @$(BIN)/python tools/release.py $(## build the archives, try the wheel, and print what is left to do)

.venv/.%: pyproject.toml tools/make_venv.py ; @test -n "$(PYTHON3)" || { echo "Python 3.11 or newer is needed" >&2; exit 1; }; $(PYTHON3) tools/make_venv.py $*
