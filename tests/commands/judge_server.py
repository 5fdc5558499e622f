"""A judge in its own process: an OpenAI-compatible server that calls zip codes high-cost and cannot decide on authors.

python -m tests.commands.judge_server      # its address is printed; at /asked, every question that it was asked
"""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY, HIGH_COST = "a key", ("total", "date", "zip")
asked: list[str] = []


class Judging(BaseHTTPRequestHandler):
    """Chat completions for whoever has the key."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["authorization"] != f"Bearer {KEY}":
            return self._say(401, {"error": {"message": "no such key", "type": "authentication_error", "code": None}})
        question = body["messages"][1]["content"]
        asked.append(question)
        word = "it depends" if "author" in question else "high" if any(cue in question for cue in HIGH_COST) else "low"
        return self._say(200, {"choices": [{"index": 0, "message": {"role": "assistant", "content": word}}]})

    def do_GET(self) -> None:
        self._say(200, asked)

    def _say(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), Judging) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()
