"""Which published figures about labels follow? Kappas and shares from their confusion counts, scores from counts.

A classifier's accuracy, F1 and kappa come from one integer confusion table; if no such table gives all three printed
numbers, they cannot all be right.
"""

from collections.abc import Iterator

from stakes.experiments.check import Check, check_fact, check_value
from stakes.published import figures
from stakes.signals.agreement import Confusion


def label_checks() -> Iterator[Check]:
    """Label validation (two checks) and the predictor (two targets)."""
    f = figures()
    for name, row in f["label_validation"].items():
        if not isinstance(row, dict):
            continue
        table = f"label validation, {name.replace('_', ' ')}"
        hh, ll, hl, lh = (row[cell] for cell in ("HH", "LL", "HL", "LH"))
        yield check_value(table, "samples", row["n"], hh + ll + hl + lh, "HH + LL + HL + LH")
        yield check_value(table, "agreement", row["agree"], (hh + ll) / row["n"], "(HH + LL) / n", decimals=3)
        yield check_value(
            table, "kappa", row["kappa"], Confusion.two(hh=hh, ll=ll, hl=hl, lh=lh).kappa, "Cohen", decimals=3
        )
        if "quantitative_high" in row:
            yield check_value(
                table,
                "quantitative, high",
                row["quantitative_high"],
                hh / (hh + hl),
                "HH / (HH + HL)",
                decimals=3,
            )
            yield check_value(
                table,
                "quantitative, low",
                row["quantitative_low"],
                lh / (lh + ll),
                "LH / (LH + LL)",
                decimals=2,
            )
    judged = f["label_validation"]["llm_judge"]
    positives = {"rule_tier": 300, "llm_judge": judged["HH"] + judged["LH"]}
    for target, high in positives.items():
        row = f["predictor"][target]
        possible = _tables(row["n"], high, row["acc"], row["f1"], row["kappa"])
        how = f"{high} high of {row['n']}: " + (f"e.g. TP, FN, FP, TN = {possible[0]}" if possible else "no table")
        found = "one table" if possible else "no table"
        yield check_fact(
            "predictor",
            f"{target}: acc {row['acc']}, F1 {row['f1']}, kappa {row['kappa']}",
            "one table",
            found,
            how,
        )


def _tables(n: int, high: int, accuracy: float, f1: float, kappa: float) -> list[tuple[int, int, int, int]]:
    """Every (TP, FN, FP, TN) with ``high`` positives whose three scores round to the printed ones."""
    fits = []
    for hit in range(high + 1):
        for rejected in range(n - high + 1):
            miss, false = high - hit, n - high - rejected
            if abs((hit + rejected) / n - accuracy) > 0.0005001 or hit == 0:
                continue
            scores = (2 * hit / (2 * hit + miss + false), Confusion.two(hh=hit, ll=rejected, hl=miss, lh=false).kappa)
            if all(abs(a - b) <= 0.0005001 for a, b in zip(scores, (f1, kappa), strict=True)):
                fits.append((hit, miss, false, rejected))
    return fits
