"""Guarantees for a policy: certificates, error ceilings, sample sizes, drift."""
