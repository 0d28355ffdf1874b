"""From a run directory to a model with its weights."""

from __future__ import annotations

from pathlib import Path

from volta.dtypes import aligned_copy, float32
from volta.errors import CheckpointError, UsageError
from volta.infer.weights import Weights, converted
from volta.model.builder import Model
from volta.model.config import Config, from_dict
from volta.model.transformer import tinylm
from volta.tensor import Tensor, from_storage
from volta.train.checkpoint import Checkpoint, expect, load

AS_TRAINED = Weights()


def load_model(
    path: Path, weights: Weights = AS_TRAINED
) -> tuple[Checkpoint, Config, Model, dict[str, Tensor]]:
    """The checkpoint (the newest of a run), its configuration, model and weights, converted as asked for.
    Raises CheckpointError."""
    checkpoint = load(path)
    try:
        config = from_dict(checkpoint.config)
    except (UsageError, TypeError) as error:
        raise CheckpointError(
            f"[checkpoint] {checkpoint.path} has no configuration of this version: {error}"
        ) from error
    model = tinylm(config)
    expect(checkpoint, {name: spec.shape for name, spec in model.parameters.items()})
    parameters = {
        name: from_storage(aligned_copy(array), float32) for name, array in checkpoint.parameters.items()
    }
    if weights != AS_TRAINED:
        config = weights.config(config)
        model, parameters = tinylm(config), converted(parameters, weights)
    return checkpoint, config, model, parameters
