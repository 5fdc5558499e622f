"""What operators see: metrics, logs, traces, the dashboard, probes and drift monitoring."""
