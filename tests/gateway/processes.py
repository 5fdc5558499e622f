"""``stakes serve``, or another command that serves, as a separate process."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def process(*options: str, command: str = "serve") -> Iterator[tuple["subprocess.Popen[str]", dict[str, object]]]:
    """(the process, the JSON that it printed first); the log is a file, because an unread pipe would block it."""
    own = ["--no-probe"] if command == "serve" else []
    words = [sys.executable, "-m", "stakes", command, "--port", "0", "--json", *own, *options]
    with (
        tempfile.NamedTemporaryFile() as log,
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True) as running,
    ):
        running.stderr = open(log.name, encoding="utf-8")  # noqa: SIM115 - closed with the process
        try:
            assert running.stdout is not None
            text = ""
            while not text.endswith("}\n"):
                line = running.stdout.readline()
                assert line, Path(log.name).read_text("utf-8")
                text = line if line == "{\n" else text + line
            yield running, json.loads(text)
        finally:
            if running.poll() is None:
                running.kill()
            running.wait(10)
