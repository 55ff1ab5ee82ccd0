"""What runs inside AReaL's own processes, in AReaL's environment, and nowhere else."""
