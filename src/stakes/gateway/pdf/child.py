"""The process that reads PDFs with PDFium: commands in on stdin, sizes and pixels out on stdout.

A message is the length of its JSON (4 bytes), the JSON, and as many bytes of data as ``bytes`` in it says.

    {"do": "open", "key": …, "most": 50, "bytes": n} + the file      ->  {"sizes": [[595.0, 842.0], …]} in points
    {"do": "draw", "key": …, "page": 0, "size": [588, 756], "at": [0, 0, 588, 756]}  ->  {"bytes": m} + BGRx

``size`` is of the drawing, ``at`` where the page's left and top and its whole width and height come to lie on it.

The last file stays open. PDFium here has no JavaScript engine, and nothing in a file is followed or started. The
address space and the time of a command are limited, no file can be written: what needs more ends this process.

    python -m stakes.gateway.pdf.child 2147483648 5.0        # bytes, seconds
"""

import json
import signal
import struct
import sys
from typing import Any, BinaryIO


class PdfProblem(Exception):
    """A file that is not drawn; ``code``: why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def send(stream: BinaryIO, message: dict[str, Any], data: bytes = b"") -> None:
    """Write one message."""
    head = json.dumps({**message, "bytes": len(data)}).encode()
    stream.write(struct.pack(">I", len(head)) + head + data)
    stream.flush()


def receive(stream: BinaryIO) -> tuple[dict[str, Any], bytes]:
    """Read one message; ``EOFError`` where the other side is gone."""
    head = stream.read(4)
    if len(head) < 4:
        raise EOFError
    text = stream.read(struct.unpack(">I", head)[0])
    message: dict[str, Any] = json.loads(text) if text else {}
    data = stream.read(message.get("bytes", 0))
    if len(data) < message.get("bytes", 0):
        raise EOFError
    return message, data


def _limit(memory: int) -> None:
    try:
        import resource

        for what, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)):
            resource.setrlimit(what, (most, most))
    except (ImportError, ValueError, OSError):  # not on this system; the parent's time limit holds everywhere
        pass


def _end_after(seconds: float) -> None:
    """Let the system end this process, even where the parent is gone; 0 for no limit."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


class _Reader:
    """Holds the last file."""

    def __init__(self) -> None:
        import pypdfium2

        self._pdfium, self._raw = pypdfium2, pypdfium2.raw
        self._key, self._document, self._data = "", None, b""

    def open(self, message: dict[str, Any], data: bytes) -> dict[str, Any]:
        """The sizes of all pages in points, turned as they are shown."""
        self._close()
        try:
            document = self._pdfium.PdfDocument(data)
        except self._pdfium.PdfiumError as error:
            raise PdfProblem("encrypted" if "password" in str(error).lower() else "unreadable") from None
        self._key, self._document, self._data = message["key"], document, data
        count = len(document)
        if count > message["most"]:
            raise PdfProblem(f"pages:{count}")
        if not count:
            raise PdfProblem("unreadable")
        if document.get_formtype():  # or filled fields are not drawn
            document.init_forms()
        sizes = []
        for index in range(count):
            try:
                sizes.append(document.get_page_size(index))
            except self._pdfium.PdfiumError:
                raise PdfProblem("unreadable") from None
        return {"sizes": sizes}

    def draw(self, message: dict[str, Any]) -> bytes:
        """The page, or the part of it that lies on the drawing, on white, as rows of BGRx."""
        if self._document is None or self._key != message["key"]:
            raise PdfProblem("closed")
        width, height = message["size"]
        try:
            page = self._document[message["page"]]
        except self._pdfium.PdfiumError:
            raise PdfProblem("unreadable") from None
        bitmap = self._pdfium.PdfBitmap.new_native(width, height, self._raw.FPDFBitmap_BGRx)
        bitmap.fill_rect((255, 255, 255, 255), 0, 0, width, height)
        area = (bitmap, page, *message["at"], 0, self._raw.FPDF_ANNOT)
        self._raw.FPDF_RenderPageBitmap(*area)
        if self._document.formenv is not None:
            self._raw.FPDF_FFLDraw(self._document.formenv, *area)
        pixels = bytes(bitmap.buffer)
        page.close()
        bitmap.close()
        return pixels

    def _close(self) -> None:
        if self._document is not None:
            self._document.close()
        self._key, self._document, self._data = "", None, b""


def main() -> None:
    """Answer until stdin ends."""
    commands, answers = sys.stdin.buffer, sys.stdout.buffer
    memory, seconds = int(sys.argv[1]), float(sys.argv[2])
    reader = _Reader()
    _limit(memory)
    while True:
        try:
            message, data = receive(commands)
        except EOFError:
            return
        _end_after(seconds)
        try:
            if message["do"] == "open":
                send(answers, reader.open(message, data))
            else:
                send(answers, {}, reader.draw(message))
        except PdfProblem as problem:
            send(answers, {"problem": problem.code})
        except MemoryError:
            send(answers, {"problem": "memory"})
            return
        _end_after(0)


if __name__ == "__main__":
    main()
