"""A callback for Hugging Face trainers; ``transformers`` is imported only when one is made."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

from anglewise_client.monitor.loop import Monitor

Embed = Callable[[Any, Any], tuple[Any, Any]]


def watch_trainer(trainer: Any, monitor: Monitor, *, embed: Embed, max_batches: int | None = None) -> Any:
    """Measure a Hugging Face trainer at each evaluation, and log to all that it reports to.

        def embed(model, batch):
            return model(**batch).embeddings, batch["labels"]

        watch_trainer(trainer, Monitor(prediction=...), embed=embed)

    Args:
        embed: ``(model, batch) → (embeddings, labels)``.
        max_batches: of the evaluation data; None: all.

    Returns:
        The callback, already added.
    """
    callback = transformers_callback(monitor, embed=embed, log=trainer.log, max_batches=max_batches)
    trainer.add_callback(callback)
    return callback


def transformers_callback(
    monitor: Monitor,
    *,
    embed: Embed,
    log: Callable[[dict[str, float]], object] | None = None,
    max_batches: int | None = None,
) -> Any:
    """The callback that `watch_trainer` adds.

    Args:
        log: takes the metrics, such as the method ``log`` of a trainer; None: only the monitor's own.
    """
    try:
        TrainerCallback: Any = import_module("transformers").TrainerCallback
    except ImportError:
        raise ImportError("this callback needs transformers: pip install transformers") from None

    class AnglewiseCallback(TrainerCallback):  # type: ignore[misc]
        def on_evaluate(
            self,
            args: Any,
            state: Any,
            control: Any,
            model: Any = None,
            eval_dataloader: Any = None,
            **kwargs: Any,
        ) -> None:
            if model is None or eval_dataloader is None:
                return
            training = model.training
            model.eval()
            try:
                with _no_gradients():
                    for index, batch in enumerate(eval_dataloader):
                        if index == max_batches:
                            break
                        monitor.add(*embed(model, _on_device(batch, getattr(args, "device", None))))
            finally:
                model.train(training)
            metrics = monitor.report(state.global_step)
            if metrics and log is not None:
                log(metrics)

    return AnglewiseCallback()


def _on_device(batch: Any, device: Any) -> Any:
    """The tensors of a batch where the model is."""
    if device is None:
        return batch
    if hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, dict):
        return {name: _on_device(value, device) for name, value in batch.items()}
    return batch


def _no_gradients() -> AbstractContextManager[Any]:
    """torch's own switch, where somebody else has loaded torch."""
    torch: Any = sys.modules.get("torch")
    switch: AbstractContextManager[Any] = nullcontext() if torch is None else torch.no_grad()
    return switch
