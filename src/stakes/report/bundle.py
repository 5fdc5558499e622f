"""Where does the charting script come from? Out of vl-convert's own wheel, so that a report needs no network.

Vega and Vega-Lite are bundled and minified once a process; about 0.9 MB.
"""

from functools import cache
from typing import Any

from stakes.errors import BadInput

_SNIPPET = "window.vegaEmbed = vegaEmbed;"


def converter() -> Any:
    """The vl_convert module, or a sentence saying how to get it."""
    try:
        import vl_convert
    except ImportError:
        raise BadInput("a report needs the charting extra; run: pip install 'stakes[report]'") from None
    return vl_convert


@cache
def charting_script() -> str:
    """The script that defines ``window.vegaEmbed``, safe within a ``<script>`` element."""
    text: str = converter().javascript_bundle(_SNIPPET)
    # Inside a string or a regular expression of a script "<\/" is the same as "</", and cannot end the element.
    text = text.replace("</script", "<\\/script").replace("<!--", "\\x3C!--")
    return f"(() => {{{text}\n}})();"  # the bundle names hundreds of things, "$" among them; none is the page's
