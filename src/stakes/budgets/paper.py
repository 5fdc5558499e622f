"""Which budgets did the paper measure at?"""

from __future__ import annotations

PAPER_MEAN = 304
PAPER_GRID = (32, 64, 96, 128, 160, 224, 304, 384, 448, 480, 512, 544, 576)
