"""The problems of ``ukjax.verify``: one file each, with its statement, equations, start and reference."""
