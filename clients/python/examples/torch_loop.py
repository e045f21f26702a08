"""A plain torch loop on imbalanced handwritten digits, measured against the optimum after every epoch.

Needs torch and scikit-learn; with a service (``python3 run.py serve``) pass a `Client`, and without one
install ``anglewise``.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import normalize

from anglewise_client import Client
from anglewise_client.monitor import Monitor

COUNTS = (150, 120, 90, 70, 50, 40, 30, 20, 15, 10)
TEMPERATURE = 0.5


def imbalanced_digits() -> tuple[torch.Tensor, torch.Tensor]:
    """(595, 64) images and (595,) digits."""
    digits = load_digits()
    rows = np.concatenate([np.flatnonzero(digits.target == c)[:n] for c, n in enumerate(COUNTS)])
    return torch.tensor(digits.data[rows], dtype=torch.float32) / 16, torch.tensor(digits.target[rows])


def supcon(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """SupCon with each item among its own positives: weighted InfoNCE with equal weights in a class."""
    log_q = torch.log_softmax(z @ z.T / TEMPERATURE, dim=1)
    same = (y[:, None] == y).float()
    return -(same * log_q).sum(1).div(same.sum(1)).mean()


def main(client: Client | None = None, epochs: int = 40) -> Monitor:
    """Train; the monitor afterwards, with the last diagnosis."""
    torch.manual_seed(0)
    x, y = imbalanced_digits()
    encoder = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    monitor = Monitor(
        prediction={"weights": {"name": "supcon"}, "temperature": TEMPERATURE}, client=client, log=print
    )
    for epoch in range(epochs):
        for batch in torch.randperm(len(x)).split(128):
            z = normalize(encoder(x[batch]))
            loss = supcon(z, y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if (epoch + 1) % 10 == 0:
            with torch.no_grad():
                monitor.add(normalize(encoder(x)), y)
            monitor.report(step=epoch + 1)
    return monitor


if __name__ == "__main__":
    last = main(Client()).last
    assert last is not None
    print(last.verdict)
