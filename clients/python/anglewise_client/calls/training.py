"""Trainings, written briefly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel

from anglewise_client._arrays import listed
from anglewise_client._call import Call
from anglewise_client.calls.computations import Sampling, SelfPairs
from anglewise_client.calls.encoding import fields_of, given
from anglewise_client.calls.jobs import submit
from anglewise_client.job_models import JobRecord


def train(
    *,
    data: Mapping[str, Any] | str | None = None,
    class_counts: Any = None,
    encoder: Mapping[str, Any] | str | None = None,
    loss: BaseModel | Mapping[str, Any] | str | None = None,
    sampling: Sampling | None = None,
    temperature: float | None = None,
    self_pairs: SelfPairs | None = None,
    dimension: int | None = None,
    projection: Literal["sphere", "ball"] | None = None,
    objective: Literal["exact", "sampled"] | None = None,
    positives: Literal["class", "views"] | None = None,
    optimizer: Mapping[str, Any] | str | None = None,
    schedule: Mapping[str, Any] | str | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    accumulate: int | None = None,
    chunk_size: int | None = None,
    processes: int | None = None,
    seed: int | None = None,
    evaluate_every: int | None = None,
    checkpoint_every: int | None = None,
    precision: Literal["float32", "float64", "bf16"] | None = None,
    device: Literal["auto", "cpu", "cuda"] | None = None,
    stop_gap: float | None = None,
    name: str | None = None,
    webhook: str | None = None,
    idempotency_key: str | None = None,
) -> Call[JobRecord]:
    """Start a training, to see whether it gets where the theory says. The service has defaults for all.

    Args:
        data: id of a data set (``"ds_…"``), name of a built-in one (``"digits"``, ``"mnist5k"``), or a
            dictionary such as ``{"generator": {"classes": 5}}``; None: free features need only counts.
        class_counts: samples to keep of each class, which gives the imbalance.
        encoder: ``"free"``, ``"linear"``, ``"mlp"``, ``"cnn"``, ``"resnet18"``, ``"resnet50"``, or a
            dictionary with that ``name`` and its settings.
        loss: such as ``InfoNCE(negatives=64)``, ``"supcon"``, or a dictionary with ``name`` and fields.
        sampling, temperature, self_pairs: of the loss, where it is given by name or does not have them.
        dimension: of the embeddings, which lie on the unit sphere or in the ball (``projection``).
        objective: ``"exact"``: the expected risk itself, for free features.
        positives: another sample of the class, or another view of the same image.
        optimizer, schedule: a name, or a dictionary with ``name`` and settings.
        steps, epochs: how long; not both.
        accumulate, chunk_size: batches of one step; samples encoded at once, for batches beyond memory.
        processes: that share every batch; None: one for each GPU of the worker.
        evaluate_every, checkpoint_every: steps.
        stop_gap: stop when the risk is this close to the optimum.
        name: for people.
        webhook: public address to be told the end.
        idempotency_key: as for `submit`.
    """
    spec = given(
        data=_data(data, class_counts),
        encoder=_named(encoder),
        loss=_loss(loss, sampling=sampling, temperature=temperature, self_pairs=self_pairs),
        dimension=dimension,
        projection=projection,
        objective=objective,
        positives=positives,
        optimizer=_named(optimizer),
        schedule=_named(schedule),
        steps=steps,
        epochs=epochs,
        batch_size=batch_size,
        accumulate=accumulate,
        chunk_size=chunk_size,
        processes=processes,
        seed=seed,
        evaluate_every=evaluate_every,
        checkpoint_every=checkpoint_every,
        precision=precision,
        device=device,
        stop_gap=stop_gap,
    )
    return submit(kind="training", spec=spec, name=name, webhook=webhook, idempotency_key=idempotency_key)


def _named(value: Mapping[str, Any] | str | None) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _loss(loss: BaseModel | Mapping[str, Any] | str | None, **more: Any) -> Any:
    fields = fields_of(_named(loss) if isinstance(loss, str) else loss)
    added = given(**more)
    return {**(fields or {}), **added} if added else fields


def _data(data: Mapping[str, Any] | str | None, class_counts: Any) -> dict[str, Any]:
    if isinstance(data, str):
        source: dict[str, Any] = {"dataset" if data.startswith("ds_") else "builtin": data}
    else:
        source = dict(data or {})
    if class_counts is not None:
        source["class_counts"] = listed(class_counts)
    return source
