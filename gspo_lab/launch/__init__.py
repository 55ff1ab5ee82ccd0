"""Launchers start workers on this machine or a cluster. Each is one file here and one line in this table."""

LAUNCHERS = {
    "local": "gspo_lab.launch.local:LocalPool",
    "ray": "gspo_lab.launch.ray:RayCluster",
    "slurm": "gspo_lab.launch.slurm:SlurmCluster",
}
"""Name -> a class called as `(jobs, **options)`. `jobs`: workers at once, None: one per slot. The options are those of
the study's table `[launch.NAME]`."""

ADDRESSED = ("ray",)
"""Launchers with an address after their name, `--on ray:HOST:PORT`; it becomes the option `address`."""
