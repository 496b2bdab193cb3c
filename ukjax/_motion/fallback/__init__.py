"""Fallbacks where the fast path does not apply: other methods, fewer rows, singular poses."""
