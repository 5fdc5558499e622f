"""PDFs that tests draw: text, scans, filled forms, rotated and odd pages, encrypted, malformed and hostile ones."""

import io
import zlib
from collections.abc import Sequence

from PIL import Image
from tests.gateway.gateways import page

A4 = (595.0, 842.0)


def written(objects: Sequence[bytes], trailer: bytes = b"") -> bytes:
    """A file of these objects, numbered from 1; the first is the catalog."""
    out, offsets = bytearray(b"%PDF-1.7\n"), []
    for number, one in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, one)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer\n<< /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, trailer, start)
    return bytes(out)


def stream(data: bytes, head: bytes = b"", packed: bool = False) -> bytes:
    data = zlib.compress(data) if packed else data
    kind = b"/Filter /FlateDecode " if packed else b""
    return b"<< %s%s/Length %d >>\nstream\n%s\nendstream" % (head, kind, len(data), data)


def text_pdf(
    pages: int = 1,
    size: tuple[float, float] = A4,
    rotate: int = 0,
    content: bytes | None = None,
    catalog: bytes = b"",
    page_extra: bytes = b"",
    more: Sequence[bytes] = (),
) -> bytes:
    """Pages of lines of text; ``more``: further objects, numbered from 4 + 2 * pages."""
    kids = b" ".join(b"%d 0 R" % (4 + 2 * i) for i in range(pages))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R %s >>" % catalog,
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, pages),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for i in range(pages):
        lines = b" ".join(
            b"(Line %d of page %d: total %d) Tj 0 -18 Td" % (row, i + 1, 7919 * row) for row in range(1, 30)
        )
        drawn = b"BT /F1 12 Tf 40 %d Td %s ET" % (int(size[1]) - 40, lines) if content is None else content
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %g %g] /Rotate %d /Resources << /Font << /F1 3 0 R >> >> "
            b"/Contents %d 0 R %s >>" % (*size, rotate, 5 + 2 * i, page_extra)
        )
        objects.append(stream(drawn, packed=bool(i % 2)))
    return written([*objects, *more])


def scan_pdf(pages: int = 1, size: tuple[int, int] = (850, 1100)) -> bytes:
    out = io.BytesIO()
    scans = [page(*size) for _ in range(pages)]
    scans[0].save(out, "PDF", save_all=True, append_images=scans[1:], resolution=100.0)
    return out.getvalue()


def form_pdf() -> bytes:
    """A page whose only ink is the value of a filled field."""
    value = stream(b"0 0 0 rg 0 0 200 40 re f", b"/Type /XObject /Subtype /Form /BBox [0 0 200 40] ")
    field = (
        b"<< /Type /Annot /Subtype /Widget /FT /Tx /T (total) /V (42) /Rect [100 700 300 740] /F 4 /P 4 0 R "
        b"/AP << /N 7 0 R >> >>"
    )
    catalog = b"/AcroForm << /Fields [6 0 R] >>"
    return text_pdf(1, content=b"", catalog=catalog, page_extra=b"/Annots [6 0 R]", more=[field, value])


def encrypted_pdf() -> bytes:
    """The standard security handler with a password that nobody has."""
    plain = text_pdf()
    key = b"<" + b"ab" * 32 + b">"
    crypt = b"/Encrypt << /Filter /Standard /V 2 /R 3 /Length 128 /P -1 /O %s /U %s >> /ID [<00><00>]" % (key, key)
    return plain.replace(b"/Root 1 0 R ", b"/Root 1 0 R " + crypt)


def scripted_pdf() -> bytes:
    """Scripts and actions at opening, links to other files, and an attachment."""
    action = b"/OpenAction << /S /JavaScript /JS (app.alert\\('x'\\); this.submitForm\\('http://127.0.0.1:9/'\\);) >> "
    launch = b"/AA << /WC << /S /Launch /F (/bin/sh) >> >> "
    named = b"/Names << /JavaScript << /Names [(a) << /S /JavaScript /JS (while\\(1\\);) >>] >> >>"
    return text_pdf(2, catalog=action + launch + named)


def good_pdfs() -> list[tuple[str, bytes, list[tuple[int, int]]]]:
    """(name, file, sizes at 200 dpi): 40 files."""

    def at(size: tuple[float, float], turned: bool = False) -> tuple[int, int]:
        width, height = (round(side / 72 * 200) for side in size)
        return (height, width) if turned else (width, height)

    found: list[tuple[str, bytes, list[tuple[int, int]]]] = []
    sizes = [A4, (612.0, 792.0), (842.0, 595.0), (420.0, 595.0), (200.0, 700.0), (298.5, 420.25)]
    found += [(f"text {s} {n}", text_pdf(n, s), [at(s)] * n) for s in sizes for n in (1, 2, 3)]
    found += [(f"rotated {by}", text_pdf(2, rotate=by), [at(A4, by != 180)] * 2) for by in (90, 180, 270)]
    for size in [(850, 1100), (600, 800), (1100, 850), (400, 1200)]:
        for pages in (1, 2):
            shown = [at((size[0] * 0.72, size[1] * 0.72))] * pages
            found.append((f"scan {size} {pages}", scan_pdf(pages, size), shown))
    found.append(("form", form_pdf(), [at(A4)]))
    found.append(("scripted", scripted_pdf(), [at(A4)] * 2))
    found.append(("empty page", text_pdf(content=b""), [at(A4)]))
    found.append(("unknown operators", text_pdf(content=b"xx yy 1 2 3 zz Tj q q q"), [at(A4)]))
    found.append(("deep states", text_pdf(content=b"q " * 20_000), [at(A4)]))
    found.append(("many lines", text_pdf(content=b"0 0 m 500 800 l S " * 2_000), [at(A4)]))
    found.append(("junk before", b"\x00junk\r\n" + text_pdf(), [at(A4)]))
    found.append(("junk after", text_pdf() + b"\x00" * 5000, [at(A4)]))
    found.append(("ten pages", text_pdf(10), [at(A4)] * 10))
    found.append(("thirty pages", text_pdf(30), [at(A4)] * 30))
    found.append(("no xref", text_pdf().replace(b"startxref", b"startxxxx"), [at(A4)]))
    return found


def bad_pdfs() -> list[tuple[str, bytes, str]]:
    """(name, file, code of the refusal): 20 files."""
    plain = text_pdf(2)
    bomb = stream(b" " * 40_000_000 + b"0 0 m 500 800 l S", packed=True)
    return [
        ("encrypted", encrypted_pdf(), "encrypted_pdf"),
        ("empty", b"%PDF-1.7\n", "unreadable_pdf"),
        ("random", b"%PDF-1.7\n" + bytes(i * 7919 % 251 for i in range(50_000)), "unreadable_pdf"),
        ("an image", _png(), "unreadable_pdf"),
        ("html", b"<html>%PDF-1.7</html>" * 50, "unreadable_pdf"),
        ("half", plain[: len(plain) // 3], "unreadable_pdf"),
        (
            "no pages",
            written([b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [] /Count 0 >>"]),
            "unreadable_pdf",
        ),
        ("no catalog", written([b"<< /Type /Font >>"]), "unreadable_pdf"),
        (
            "pages in a circle",
            written([b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [2 0 R] /Count 1 >>"]),
            "unreadable_pdf",
        ),
        ("deep arrays", b"%PDF-1.7\n1 0 obj\n" + b"[" * 100_000 + b"\nendobj\n%%EOF", "unreadable_pdf"),
        ("51 pages", text_pdf(51), "too_many_images"),
        ("a million pages", plain.replace(b"/Count 2", b"/Count 1000000"), "too_many_images"),
        ("a huge page", text_pdf(1, (14_400.0, 14_400.0)), "too_many_pixels"),
        ("a tiny page", text_pdf(1, (0.5, 0.5)), "image_too_small"),
        ("a thread", text_pdf(1, (0.9, 9000.0)), "image_too_small"),
        ("a thin page", text_pdf(1, (3.0, 9000.0)), "image_too_thin"),
        ("pages of nothing", plain.replace(b"/MediaBox [0 0 595 842]", b"/MediaBox [0 0 0 0]    "), "fitted"),
        ("wrong streams", plain.replace(b"/Length", b"/Lengtx"), "fitted"),
        ("a reference to nothing", plain.replace(b"/Contents 5 0 R", b"/Contents 9 9 R"), "fitted"),
        ("a bomb", text_pdf(1, content=b"").replace(stream(b""), bomb), "fitted"),
    ]


def _png() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (20, 20)).save(out, "PNG")
    return out.getvalue()
