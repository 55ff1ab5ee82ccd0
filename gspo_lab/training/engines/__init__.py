"""The engines room: who trains a run. An engine is one file here and one line in this table."""

ENGINES = {
    "native": "gspo_lab.training.engines.native:NativeEngine",
    "areal": "gspo_lab.training.engines.areal:ArealEngine",
    "trl": "gspo_lab.training.engines.trl:TrlEngine",
    "verl": "gspo_lab.training.engines.verl:VerlEngine",
}
