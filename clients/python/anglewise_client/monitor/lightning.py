"""A callback for Lightning, which is imported only when one is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Literal

from anglewise_client.monitor.loop import Monitor

Collect = Callable[[Any, Any, Any], tuple[Any, Any]]
EMBEDDING_NAMES = ("embeddings", "z", "features", "projections")
LABEL_NAMES = ("labels", "y", "targets", "target")


def lightning_callback(
    monitor: Monitor,
    *,
    stage: Literal["train", "validation"] = "validation",
    collect: Collect | None = None,
    every: int = 1,
) -> Any:
    """A Lightning callback that logs the metrics of each epoch to the trainer's loggers.

        trainer = Trainer(callbacks=[lightning_callback(Monitor(prediction=...))])

    The values are also in ``trainer.callback_metrics``, so checkpoints and early stopping can follow them. In
    distributed training each process measures its own share, and the mean is logged.

    Args:
        monitor: what measures; its own ``log`` is called as well, if it has one.
        stage: whose batches are measured.
        collect: ``(module, outputs, batch) → (embeddings, labels)``; None: the step returns a dictionary that
            has both (``embeddings``, ``labels``), or has the embeddings where the batch has the labels.
        every: measure each so many epochs.
    """
    Callback = _callback_class()
    choose = collect or from_step

    class AnglewiseCallback(Callback):  # type: ignore[misc, valid-type]
        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            if stage == "train":
                self._add(trainer, pl_module, outputs, batch)

        def on_validation_batch_end(
            self,
            trainer: Any,
            pl_module: Any,
            outputs: Any,
            batch: Any,
            batch_idx: int,
            dataloader_idx: int = 0,
        ) -> None:
            if stage == "validation":
                self._add(trainer, pl_module, outputs, batch)

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            if stage == "train":
                self._report(trainer, pl_module)

        def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            if stage == "validation":
                self._report(trainer, pl_module)

        def _add(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any) -> None:
            # Before a training, Lightning tries a few batches of the validation.
            if not trainer.sanity_checking and (trainer.current_epoch + 1) % every == 0:
                monitor.add(*choose(pl_module, outputs, batch))

        def _report(self, trainer: Any, pl_module: Any) -> None:
            metrics = monitor.report(trainer.global_step)
            if metrics:
                pl_module.log_dict(metrics, on_step=False, on_epoch=True, sync_dist=trainer.world_size > 1)

    return AnglewiseCallback()


def from_step(module: Any, outputs: Any, batch: Any) -> tuple[Any, Any]:
    """Embeddings and labels where steps usually have them.

    Raises:
        ValueError: they are not there.
    """
    embeddings = _first(outputs, EMBEDDING_NAMES)
    labels = _first(outputs, LABEL_NAMES)
    if labels is None:
        in_pair = isinstance(batch, list | tuple) and len(batch) == 2
        labels = batch[1] if in_pair else _first(batch, LABEL_NAMES)
    if embeddings is None or labels is None:
        raise ValueError(
            "the step must return {'embeddings': …, 'labels': …}; or pass collect=, a function of "
            "(module, outputs, batch) that returns both"
        )
    return embeddings, labels


def _first(mapping: Any, names: tuple[str, ...]) -> Any:
    if not isinstance(mapping, Mapping):
        return None
    return next((mapping[name] for name in names if mapping.get(name) is not None), None)


def _callback_class() -> Any:
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            return import_module(name).Callback
        except ImportError:
            continue
    raise ImportError("this callback needs Lightning: pip install lightning")
