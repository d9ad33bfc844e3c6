"""The built-in provider: machines in SQLite, hosts simulated by kwok."""
