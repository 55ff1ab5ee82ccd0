"""What every other package may use: errors, paths, atomic files, the registry and keys."""
