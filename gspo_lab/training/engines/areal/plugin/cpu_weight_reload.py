"""vLLM's worker as AReaL extends it, on a CPU: there vLLM repacks linear weights for oneDNN and
drops those into which the next ones are to be loaded. Without oneDNN it keeps them."""

import vllm._custom_ops as ops
from areal.engine.vllm_ext.vllm_worker_extension import VLLMWorkerExtension

__all__ = ["Extension"]

ops._supports_onednn = False
Extension = VLLMWorkerExtension
