"""The launch room: who starts workers, and where. A launcher is one file here and one line in this table."""

LAUNCHERS = {
    "local": "gspo_lab.launch.local:LocalPool",
    "ray": "gspo_lab.launch.ray:RayCluster",
    "slurm": "gspo_lab.launch.slurm:SlurmCluster",
}
"""Name -> a class called as `(jobs, **options)`: how many workers at once, None for as many as there are places; the
options are those of the study's table `[launch.NAME]`."""

ADDRESSED = ("ray",)
"""Those that take an address behind their name, `--on ray:HOST:PORT`, as the option `address`."""
