"""Logs of other programs in, and numbers for other programs out."""
