"""The gateway's log: one JSON object a line on stderr, never an image, and no question unless asked for.

Image requests, refusals and failures are logged; text requests that pass untouched are only counted.

    log = Log(); log.write("request", tier="high", budget=[576])
"""

import json
import logging
import re
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

LOGGER = "stakes.gateway"
_QUOTED = re.compile(r'"[^"]*"')
_DATA_URL = re.compile(r"data:[a-z0-9.+/-]*;base64,[A-Za-z0-9+/=_-]*", re.IGNORECASE)
_LONGEST = 500


class Log:
    """The gateway's own log; ``questions``: whether words of questions may be logged."""

    def __init__(self, questions: bool = False) -> None:
        self.questions = questions
        self._logger = logging.getLogger(LOGGER)

    def write(
        self, event: str, level: int = logging.INFO, *, failure: BaseException | None = None, **fields: Any
    ) -> None:
        """Write one event."""
        self._logger.log(level, event, extra={"fields": fields}, exc_info=failure)


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON. Records of libraries are redacted in the same way."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": redact(record.getMessage()),
            **{key: redact(value) for key, value in getattr(record, "fields", {}).items() if value is not None},
        }
        if record.exc_info and record.exc_info[0] is not None:
            # The type and the line only: a message may hold whatever the client sent.
            fields["error"] = record.exc_info[0].__name__
            for frame in traceback.extract_tb(record.exc_info[2])[-1:]:
                fields["at"] = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
        return json.dumps(fields, ensure_ascii=False, default=str)


def without_quotes(why: str) -> str:
    """The reason for a tier with its quoted words left out."""
    return _QUOTED.sub('"…"', why)


def redact(value: Any) -> Any:
    """A value without images, shortened if it is a long text."""
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
