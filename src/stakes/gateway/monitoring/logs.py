"""What does the gateway write down? One JSON object a line on stderr: never an image, no question unless asked for.

Image requests, refusals and failures are logged; text requests that pass untouched are only counted.

    log = Log(); log.say("request", tier="high", budget=[576])
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any

LOGGER = "stakes.gateway"
_QUOTED = re.compile(r'"[^"]*"')
_DATA_URL = re.compile(r"data:[a-z0-9.+/-]*;base64,[A-Za-z0-9+/=_-]*", re.IGNORECASE)
_LONGEST = 500


class JsonLines(logging.Formatter):
    """A log record as one line of JSON; whatever else a library says goes through the same sieve."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": clean(record.getMessage()),
            **{key: clean(value) for key, value in getattr(record, "fields", {}).items() if value is not None},
        }
        if record.exc_info and record.exc_info[0] is not None:
            # The kind and the place only: a message may hold whatever the client sent.
            fields["error"] = record.exc_info[0].__name__
            trace = record.exc_info[2]
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            if trace is not None:
                fields["at"] = f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
        return json.dumps(fields, ensure_ascii=False, default=str)


class Log:
    """The gateway's own log; ``questions``: whether words of questions may be written."""

    def __init__(self, questions: bool = False) -> None:
        self.questions = questions
        self._logger = logging.getLogger(LOGGER)

    def say(
        self, event: str, level: int = logging.INFO, *, failure: BaseException | None = None, **fields: Any
    ) -> None:
        """Write one event."""
        self._logger.log(level, event, extra={"fields": fields}, exc_info=failure)

    def why(self, why: str) -> str:
        """A tier's reason without the question's words that it quotes."""
        return why if self.questions else without_quotes(why)


def without_quotes(why: str) -> str:
    """A tier's reason with the quoted words left out."""
    return _QUOTED.sub('"…"', why)


def clean(value: Any) -> Any:
    """Cut images out, and cut what is long."""
    if not isinstance(value, str):
        return value
    text = _DATA_URL.sub("data:…", value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"


def write_to_stderr(level: int = logging.INFO) -> None:
    """Send the gateway's log and the server's own to stderr as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in (LOGGER, "uvicorn.error", "asyncio", "aiohttp"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level if name == LOGGER else logging.WARNING)
