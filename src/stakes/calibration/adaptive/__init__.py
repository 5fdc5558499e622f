"""Adaptive sampling: leave out answers that can no longer change the choice of budgets."""
