"""One script per claim. ``python -m benchmarks NAME`` runs one from the repository's root, prints it and keeps it in
``benchmarks/results/NAME.json`` with machine, versions and date."""
