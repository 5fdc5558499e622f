"""The gateway's decision inside Envoy: Envoy carries the bytes, and asks for the fitted request."""
