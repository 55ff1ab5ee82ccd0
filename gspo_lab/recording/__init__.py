"""Records, journals, run folders and the SQLite database."""
