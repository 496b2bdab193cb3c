"""What cannot be written out."""


class Unsupported(Exception):
    """An operation that cannot be written out: a loop of unknown length, a sort, a solver of LAPACK."""
