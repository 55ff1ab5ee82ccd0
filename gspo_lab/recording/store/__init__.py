"""The database:

`ingest` writes it from the run folders, `Evidence` reads it. Imports no pandas and no sqlite-utils.
"""

from gspo_lab.common.paths import DATABASE
from gspo_lab.recording.store.evidence import Evidence
from gspo_lab.recording.store.export import export
from gspo_lab.recording.store.ingest import ingest, rebuild

__all__ = ["DATABASE", "Evidence", "export", "ingest", "rebuild"]
