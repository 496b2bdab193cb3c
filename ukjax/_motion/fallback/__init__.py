"""What to do where the fast path is not enough: other methods, fewer rows, singular poses."""
