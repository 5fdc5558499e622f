"""What does the documentation say of ``resize.py``'s results? Tables, and the bar with whether it is met."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.machine import about_table

BAR = 304  # tokens of the bar, at which the limits are taken apart
WANTED, WORST, PSNR = 3.0, 2.5, 44.0  # times as fast as the plain way: median, least; decibels


def tables(results: dict[str, Any]) -> dict[str, Any]:
    """What the documentation shows."""

    def spread(values: Sequence[float], unit: str = "") -> str:
        return f"{median(values):.1f}{unit} ({min(values):.1f} to {max(values):.1f})"

    rows = []
    for part in results["budgets"]:
        pages = part["pages"]
        cells = [part["budget"], *(spread([page[key] for page in pages]) for key in ("fit_ms", "plain_ms"))]
        cells += [spread([page["ratio"] for page in pages], "×"), min(page["psnr"] for page in pages)]
        if results["peer"] is None:
            cells += [spread([page["vips_ratio"] for page in pages], "×"), min(page["vips_psnr"] for page in pages)]
        rows.append([_short(cell) for cell in cells])
    columns = ["tokens", "fit, ms", "plain, ms", "plain / fit", "least PSNR, dB"]
    columns += ["pyvips / fit", "its least PSNR"] if results["peer"] is None else []
    keys = ["scale", "decode_ms", "resample_ms", "times_target", "ratio", "least_ratio", "least_psnr"]
    below = [
        [round(row[key], 1) if isinstance(row[key], float) else row[key] for key in keys] for row in results["limits"]
    ]
    heads = ["decoded at", "decode, ms", "resample, ms", "times the target", "plain / both", "least", "least PSNR, dB"]
    return {
        "resize": {"columns": columns, "rows": rows, "findings": findings(results)},
        "resize-limits": {"columns": heads, "rows": below},
        "resize-about": about_table(results["about"]),
    }


def findings(results: dict[str, Any]) -> list[str]:
    """The bar, and whether it is met."""
    (pages,) = (part["pages"] for part in results["budgets"] if part["budget"] == BAR)
    ratios, least = [page["ratio"] for page in pages], min(page["psnr"] for page in pages)
    met = median(ratios) >= WANTED and min(ratios) >= WORST and least >= PSNR
    return [
        f"At {BAR} tokens `fit` is {median(ratios):.2f} times as fast as the plain way (median of {len(pages)} "
        f"photographs; {min(ratios):.2f} to {max(ratios):.2f}), at {least:.1f} dB or more. The bar is {WANTED:g} "
        f"times, none under {WORST:g}, at {PSNR:g} dB: {'met' if met else 'missed'}.",
        *(
            f"Decoded at {row['scale']} of its sides, a photograph could be had {row['ratio']:.2f} times as fast (at "
            f"worst {row['least_ratio']:.2f}), at {row['least_psnr']:.1f} dB or more."
            for row in results["limits"][1:]
        ),
    ]


def _short(cell: object) -> object:
    return f"{cell:.1f}" if isinstance(cell, float) else cell
