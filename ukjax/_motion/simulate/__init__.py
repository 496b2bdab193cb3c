"""``simulate``: the check of its arguments, and the motion."""
