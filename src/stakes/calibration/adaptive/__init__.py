"""Adaptive sampling: ask only what can still change the chosen budgets."""
