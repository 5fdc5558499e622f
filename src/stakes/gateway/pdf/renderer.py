"""Draws pages of PDFs in processes of their own, each killed when a file takes too long.

    renderer = PdfRenderer(Limits())
    pages = renderer.pages(data, label="1")          # sizes in pixels at 200 dpi
    pages[0].draw(588, 756)                          # a PIL image of exactly that size
    pages[0].draw(588, 756, pages[0].margins())      # without the page's margins

All of it blocks and runs in the bounded workers.
"""

import hashlib
import math
import os
import queue
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Timer
from typing import Any

from PIL import Image

from stakes.errors import BadInput
from stakes.gateway.pdf.child import receive, send
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.settings import Limits
from stakes.vision.image.trim import Bounds, margins

MOST_PIXELS = 8_000_000  # that are drawn to be reduced
DPI = 200  # of a page's native size: a scanned page's usual one
_USES = 200  # commands after which a process is replaced, so that whatever PDFium keeps is given back
_PROBLEMS = {
    "encrypted": "a PDF is encrypted; send it without a password",
    "unreadable": "a PDF is damaged, or is none",
    "memory": "a PDF takes too much memory to draw; send its pages as images",
    "ended": "a PDF takes too long, or too much memory, to draw; send its pages as images",
}


@dataclass(frozen=True)
class PdfPage:
    """One page: its size in pixels at 200 dpi, and ``label``, the number of its file and its own."""

    renderer: "PdfRenderer" = field(repr=False)
    key: str
    data: bytes = field(repr=False)
    index: int
    width: int
    height: int
    label: str

    def draw(self, width: int, height: int, box: Bounds | None = None) -> Image.Image:
        """The page, or a box of its pixels, in exactly this size.

        It is drawn twice as large and reduced, because PDFium reduces scans worse than Pillow.
        """
        times = 2 if 4 * width * height <= MOST_PIXELS else 1
        left, top, right, bottom = box or (0, 0, self.width, self.height)
        across, down = times * width / (right - left), times * height / (bottom - top)
        at = [round(n) for n in (-left * across, -top * down, self.width * across, self.height * down)]
        drawn = self.renderer.draw(self, (times * width, times * height), at)
        return drawn if times == 1 else drawn.resize((width, height), Image.Resampling.LANCZOS)

    def margins(self) -> Bounds:
        """The box of the page's pixels without its margins, found on a drawing of half its size or less."""
        part = max(2, math.ceil(math.sqrt(self.width * self.height / MOST_PIXELS)))
        size = max(1, self.width // part), max(1, self.height // part)
        x0, y0, x1, y1 = margins(self.renderer.draw(self, size, [0, 0, *size]))
        across, down = self.width / size[0], self.height / size[1]
        return math.floor(x0 * across), math.floor(y0 * down), math.ceil(x1 * across), math.ceil(y1 * down)


class _Child:
    """One process, and the file that it has open."""

    def __init__(self, limits: Limits) -> None:
        command = [sys.executable, "-m", "stakes.gateway.pdf.child", str(limits.pdf_memory), str(limits.pdf_s + 1)]
        known = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "LD_LIBRARY_PATH") if name in os.environ}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**known, "PYTHONPATH": os.pathsep.join(sys.path)},  # and no keys
        )
        self.uses, self.key = 0, ""

    def ask(self, seconds: float, message: dict[str, Any], data: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """The answer; ``EOFError`` where the process ended or took too long."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.uses += 1
        limit = Timer(seconds, self._process.kill)
        limit.start()
        try:
            send(self._process.stdin, message, data)  # type: ignore[arg-type]
            return receive(self._process.stdout)  # type: ignore[arg-type]
        except OSError:
            raise EOFError from None
        finally:
            limit.cancel()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # what was not written yet
                pipe.close()  # type: ignore[union-attr]
        self._process.wait()


class PdfRenderer:
    """Draws for one gateway, with as many processes at most as it has workers; each is started when it is needed."""

    def __init__(self, limits: Limits) -> None:
        try:
            import pypdfium2  # noqa: F401 - the processes need it; here it is an error at the start
        except ImportError:
            raise BadInput("drawing PDFs needs pypdfium2; run: pip install 'stakes[pdf]'") from None
        self._limits, self._closed = limits, False
        self._slots: queue.LifoQueue[_Child | None] = queue.LifoQueue()
        for _ in range(limits.workers):
            self._slots.put(None)

    def pages(self, data: bytes, label: str, most: int) -> list[PdfPage]:
        """The pages of a file, ``most`` at most."""
        key = hashlib.blake2b(data, digest_size=16).hexdigest()
        with self._lent() as child:
            sizes = self._open(child, key, data, most)
        pages = []
        for index, (width, height) in enumerate(sizes):
            if not (0 < width < 1e6 and 0 < height < 1e6):
                raise _refusal("unreadable")
            size = max(1, round(width / 72 * DPI)), max(1, round(height / 72 * DPI))
            if size[0] * size[1] > self._limits.pixels:
                message = f"a page of a PDF has more than {self._limits.pixels} pixels at {DPI} dpi; send a smaller one"
                raise Refused(422, "too_many_pixels", message)
            pages.append(PdfPage(self, key, data, index, *size, f"{label}.{index + 1}"))
        return pages

    def draw(self, page: PdfPage, size: tuple[int, int], at: Sequence[int]) -> Image.Image:
        """A drawing of exactly this size by PDFium; ``at``: where the page lies on it (left, top, width, height)."""
        message = {"do": "draw", "key": page.key, "page": page.index, "size": size, "at": list(at)}
        with self._lent() as child:
            if child.key != page.key:
                self._open(child, page.key, page.data, self._limits.images)
            answer, pixels = self._ask(child, message)
        if "problem" in answer:
            raise _refusal(answer["problem"])
        return Image.frombytes("RGB", size, pixels, "raw", "BGRX")

    def close(self) -> None:
        """End the processes; one that is drawing ends with its page."""
        self._closed = True
        free: list[_Child | None] = []
        with suppress(queue.Empty):
            while True:
                free.append(self._slots.get_nowait())
        for child in free:
            if child is not None:
                child.close()
            self._slots.put(None)  # somebody may wait for it

    def _open(self, child: _Child, key: str, data: bytes, most: int) -> list[tuple[float, float]]:
        child.key = ""
        answer, _ = self._ask(child, {"do": "open", "key": key, "most": most}, data)
        if "problem" in answer:
            raise _refusal(answer["problem"], most)
        child.key = key
        return [(width, height) for width, height in answer["sizes"]]

    def _ask(self, child: _Child, message: dict[str, Any], data: bytes = b"") -> tuple[dict[str, Any], bytes]:
        try:
            answer, pixels = child.ask(self._limits.pdf_s, message, data)
        except EOFError:
            child.close()
            raise _refusal("ended") from None
        if answer.get("problem") == "memory":  # it ends, but may not have ended yet
            child.close()
        return answer, pixels

    @contextmanager
    def _lent(self) -> Iterator[_Child]:
        """A process of the pool; one that ended, or was used often, is replaced when it is next needed."""
        child = self._slots.get()
        try:
            if child is None or not child.alive:
                child = _Child(self._limits)
            yield child
        finally:
            if child is not None and (self._closed or not child.alive or child.uses >= _USES):
                child.close()
                child = None
            self._slots.put(child)
            if self._closed and child is not None:  # closed in between
                self.close()


def _refusal(problem: str, most: int = 0) -> Refused:
    """What the client sees; damaged files are forwarded by a gateway that fails open, those over a limit never are."""
    if problem.startswith("pages:"):
        count = problem.partition(":")[2]
        return Refused(422, "too_many_images", f"a PDF has {count} pages, and a request may hold {most} images at most")
    known = problem if problem in _PROBLEMS else "unreadable"
    code = {"encrypted": "encrypted_pdf", "unreadable": "unreadable_pdf"}.get(known, "pdf_over_limit")
    return Refused(422, code, _PROBLEMS[known], passable=code == "unreadable_pdf")
