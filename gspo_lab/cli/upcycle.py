"""`upcycle`: a dense model becomes a mixture of experts."""

from pathlib import Path
from typing import Annotated

import typer

from gspo_lab.cli.output import print_lines

EXAMPLES = {
    "upcycle": (
        "gspo-lab upcycle HuggingFaceTB/SmolLM2-135M-Instruct moe --layers 24-29",
        "gspo-lab upcycle Qwen/Qwen3-0.6B moe --experts 8 --top-k 2 --noise 0.1",
    ),
}


def upcycle(
    model: Annotated[str, typer.Argument(help="A dense model: a folder, or a Hub id.")],
    folder: Annotated[Path, typer.Argument(help="The folder of the mixture; must not exist.")],
    experts: Annotated[int, typer.Option(help="Experts of each mixture layer.")] = 4,
    top_k: Annotated[int, typer.Option(help="Experts per token.")] = 2,
    layers: Annotated[
        str, typer.Option(help="Layers that become mixtures, like 24-29; all if unset.")
    ] = "",
    noise: Annotated[
        float, typer.Option(help="Noise of the experts, as a share of their weights' deviation.")
    ] = 0.2,
    family: Annotated[
        str, typer.Option(help="qwen2_moe, qwen3_moe or mixtral; by the model if unset.")
    ] = "",
    seed: Annotated[int, typer.Option(help="Seed of routers and noise.")] = 0,
) -> None:
    """Make a mixture of experts of a dense model, checked against it before noise."""
    from gspo_lab.common.errors import LabError
    from gspo_lab.study.load import validated
    from gspo_lab.study.start_tables import UpcycleTable
    from gspo_lab.training.models.upcycle import MEANING, upcycle

    values = {
        "experts": experts,
        "top_k": top_k,
        "layers": layers,
        "noise": noise,
        "family": family,
        "seed": seed,
    }
    mistakes: list[str] = []
    settings = validated(UpcycleTable, values, "upcycle", mistakes)
    if mistakes:
        raise LabError("; ".join(mistakes))
    result = upcycle(model, folder, settings)
    print_lines(
        [
            f"{folder}: {result.parameters / 1e6:,.1f} million parameters",
            f"before noise, log-probs differ from the dense model's by at most"
            f" {result.difference:.1g}; with noise, KL {result.kl:.3g} nats per token",
            MEANING,
            f'Next: model = "{folder}" in a study, or model = "upcycled:{model}" with [upcycle]',
        ]
    )
