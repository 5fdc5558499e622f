"""Calibrate a policy (measure, fit, choose, certify) and evaluate it against other ways of spending the same total."""
