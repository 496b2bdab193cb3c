"""How compiled programs are made, kept and run on this machine."""
