"""One script per claim. ``python -m benchmarks NAME`` runs one script from the root of the repository. The results are
printed and saved in ``benchmarks/results/NAME.json``, with commit, machine, load, versions and date."""
