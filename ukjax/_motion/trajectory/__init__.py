"""What a simulation returns, and its files."""
