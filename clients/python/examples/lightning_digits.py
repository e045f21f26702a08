"""The loop of torch_loop.py in Lightning: the callback logs every metric to the trainer's loggers."""

from __future__ import annotations

from typing import Any

import lightning
import torch
from torch.nn.functional import normalize
from torch.utils.data import DataLoader, TensorDataset
from torch_loop import TEMPERATURE, imbalanced_digits, supcon

from anglewise_client import Client
from anglewise_client.monitor import Monitor, lightning_callback


class Encoder(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        x, y = batch
        return supcon(normalize(self.layers(x)), y)

    def validation_step(self, batch: Any, _: int) -> dict[str, torch.Tensor]:
        x, y = batch
        return {"embeddings": normalize(self.layers(x)), "labels": y}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main(client: Client | None = None, epochs: int = 40, **options: Any) -> tuple[Monitor, lightning.Trainer]:
    """Train; the monitor with the last diagnosis, and the trainer with what it logged."""
    lightning.seed_everything(0, verbose=False)
    data = TensorDataset(*imbalanced_digits())
    monitor = Monitor(prediction={"weights": {"name": "supcon"}, "temperature": TEMPERATURE}, client=client)
    trainer = lightning.Trainer(
        max_epochs=epochs,
        check_val_every_n_epoch=10,
        accelerator="cpu",
        callbacks=[lightning_callback(monitor)],
        **options,
    )
    trainer.fit(Encoder(), DataLoader(data, batch_size=128, shuffle=True), DataLoader(data, batch_size=256))
    return monitor, trainer


if __name__ == "__main__":
    monitor, _ = main(Client())
    assert monitor.last is not None
    print(monitor.last.verdict)
