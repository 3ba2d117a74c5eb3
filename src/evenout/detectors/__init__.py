"""Detectors: rows in, raw scores out, higher = more outlying."""
