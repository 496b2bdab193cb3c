"""One script per claim. ``python -m benchmarks NAME`` runs one from the repository's root, prints it and saves it in
``benchmarks/results/NAME.json`` with commit, machine, load, versions and date."""
