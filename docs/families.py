"""Fill the table of families in docs/families.md from the data: python docs/families.py"""

import re
from pathlib import Path

from stakes.commands.output import as_markdown
from stakes.vision.geometry import families, tokens_as_sent

PAGE = Path(__file__).parent / "families.md"
PARTS = re.compile(r"(<!-- families (local|hosted) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str) -> str:
    """The page with both tables filled."""
    return PARTS.sub(lambda found: found[1] + _table(found[2] == "hosted") + found[3], page)


def _table(hosted: bool) -> str:
    rows: list[list[str]] = [
        [
            f"`{name}`",
            str(tokens_as_sent(name, 1654, 2339)),
            "image size" if one.controllable_by_resizing else one.engine_parameter or "nothing",
            f"{'**from documentation**: ' if one.documented else ''}{one.source}, {one.version}",
        ]
        for name, one in families().items()
        if one.hosted == hosted
    ]
    return as_markdown(["family", "1654 x 2339", "tokens set by", "source, date"], rows)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
