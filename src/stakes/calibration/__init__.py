"""Measure, fit, choose, certify: from labelled samples to a policy."""
