"""How is one chat message put to an OpenAI-compatible server? With bounded retries, and an error that says what failed.

Retried, with doubling pauses or as long as ``Retry-After`` asks (a minute at most): 408, 409, 425, 429, any 5xx,
timeouts, broken connections. Not retried: every other 4xx, since asking again cannot help. Nothing is read from the
environment.

    with ChatEndpoint("http://127.0.0.1:8000/v1", "my-model") as endpoint:
        endpoint.ask([{"role": "user", "content": "Say high or low."}])
"""

import time
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from types import TracebackType

import httpx

from stakes.errors import BadInput, StakesError

Message = dict[str, str]

_RETRIED = {408, 409, 425, 429}


def server_name(base_url: str, api_key: str | None = None) -> str:
    """Check an address and a key, and name the server for messages: scheme and host, without any password."""
    try:
        url = httpx.URL(base_url)
    except (httpx.InvalidURL, TypeError):
        raise BadInput(f"{base_url!r} is not an address; give one such as http://127.0.0.1:8000/v1") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise BadInput(f"{base_url!r} is not an http(s) address; give one such as http://127.0.0.1:8000/v1")
    if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
        raise BadInput("the API key holds characters that no header can carry; was it pasted with a line break?")
    return f"{url.scheme}://{url.netloc.decode('ascii').rpartition('@')[2]}"


class ChatEndpoint:
    """One model behind one server; safe to use from several threads."""

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None = None,
        *,
        tries: int = 5,
        pause_s: float = 1.0,
        longest_pause_s: float = 60.0,
        timeout_s: float = 60.0,
        max_tokens: int | None = 16,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._where = server_name(base_url, api_key)
        if not model:
            raise BadInput("an endpoint needs the name of the model to ask")
        if tries < 1:
            raise BadInput(f"an endpoint needs at least one try, not {tries!r}")
        self.base_url, self.model = base_url.rstrip("/"), model
        self._tries, self._pause, self._longest_pause = tries, pause_s, longest_pause_s
        self._max_tokens, self._sleep = max_tokens, sleep
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        # trust_env off: a proxy or a .netrc login that nobody named here must not see the questions
        self._client = httpx.Client(timeout=timeout_s, headers=headers, trust_env=False)

    def ask(self, messages: Sequence[Message]) -> str:
        """Return the model's reply at temperature 0."""
        body: dict[str, object] = {"model": self.model, "messages": list(messages), "temperature": 0}
        if self._max_tokens is not None:
            body["max_tokens"] = self._max_tokens
        failure = ""
        for attempt in range(self._tries):
            wait: float | None = None
            try:
                response = self._client.post(f"{self.base_url}/chat/completions", json=body)
            except httpx.RequestError as error:
                failure = f"{type(error).__name__}: {error}".rstrip(": ")
            else:
                if response.status_code == 200:
                    return self._content(response)
                failure = f"HTTP {response.status_code}"
                if response.status_code not in _RETRIED and response.status_code < 500:
                    raise BadInput(f"{self._where} refused the request ({failure}): {_said(response)}")
                wait = retry_after(response.headers.get("retry-after"), time.time())
            if attempt + 1 < self._tries:
                pause = self._pause * 2**attempt if wait is None else wait
                self._sleep(min(pause, self._longest_pause))
        raise StakesError(
            f"{self._where} gave no answer in {self._tries} tries (last: {failure}); "
            "check that the server runs and that base_url is right"
        )

    def _content(self, response: httpx.Response) -> str:
        try:
            content = response.json()["choices"][0]["message"]["content"]
        except (ValueError, LookupError, TypeError):
            raise BadInput(f"{self._where} did not answer as an OpenAI chat server: {_said(response)}") from None
        return content if isinstance(content, str) else ""  # null content: a reply without text

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __enter__(self) -> "ChatEndpoint":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def retry_after(value: str | None, now: float) -> float | None:
    """Read a ``Retry-After`` header (seconds, or a date) as seconds from ``now``; None where it is not readable."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:12])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _said(response: httpx.Response) -> str:
    return " ".join(response.text[:300].split()) or "an empty reply"
