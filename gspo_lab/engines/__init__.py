"""The engines room: who trains a run. An engine is one file here and one line in this table."""

ENGINES = {
    "native": "gspo_lab.engines.native:NativeEngine",
    "areal": "gspo_lab.engines.areal:ArealEngine",
    "trl": "gspo_lab.engines.trl:TrlEngine",
    "verl": "gspo_lab.engines.verl:VerlEngine",
}
