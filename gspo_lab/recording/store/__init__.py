"""The database, which `ingest` writes from the run folders and `Evidence` reads.

Neither pandas nor sqlite-utils is imported here."""

from gspo_lab.common.paths import DATABASE
from gspo_lab.recording.store.evidence import Evidence
from gspo_lab.recording.store.export import export
from gspo_lab.recording.store.ingest import ingest, rebuild

__all__ = ["DATABASE", "Evidence", "export", "ingest", "rebuild"]
