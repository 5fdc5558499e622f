"""A page in Chromium, for the browser tests of the dashboard."""

import re
from typing import Any


class Page:
    """A page that records every error and every request."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1200, "height": 900}, **options)
        self.page = self.context.new_page()
        self.requested: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requested.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._on_console)
        self.page.goto(address)

    def _on_console(self, line: Any) -> None:
        if line.type == "error":
            self.errors.append(line.text)

    def wait(self, what: str, pattern: str, seconds: float = 30) -> None:
        from playwright.sync_api import expect

        expect(self.page.locator(what)).to_have_text(re.compile(pattern), timeout=1000 * seconds)
