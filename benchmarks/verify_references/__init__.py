"""References of ``ukjax.verify`` by two methods: ``python -m benchmarks.verify_references [NAME ...]``."""
