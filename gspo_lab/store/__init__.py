"""The database: `ingest` writes it from the run folders, `Evidence` reads it. Imports no pandas and no sqlite-utils."""

from gspo_lab.paths import DATABASE
from gspo_lab.store.evidence import Evidence
from gspo_lab.store.export import export
from gspo_lab.store.ingest import IngestReport, ingest, rebuild

__all__ = ["DATABASE", "Evidence", "IngestReport", "export", "ingest", "rebuild"]
