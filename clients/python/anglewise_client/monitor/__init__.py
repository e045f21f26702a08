"""A training loop of one's own, measured against the optimum for its class counts.

    from anglewise_client.monitor import Monitor

    monitor = Monitor(prediction={"loss": {"temperature": 0.1}}, log=wandb.log)
    for epoch in range(epochs):
        ...
        for batch in loader:
            monitor.add(model(batch.x), batch.y)
        monitor.report(step=epoch)

Embeddings may be numpy arrays or torch tensors on any device; torch itself is never imported here. The
measuring is done by a service (pass a `Client`), or in this process where the package ``anglewise`` is
installed. `lightning_callback` and `watch_trainer` do the same for Lightning and Hugging Face trainers.
"""

from anglewise_client.monitor.collecting import Sample
from anglewise_client.monitor.hugging_face import transformers_callback, watch_trainer
from anglewise_client.monitor.lightning import lightning_callback
from anglewise_client.monitor.loop import Monitor

__all__ = ["Monitor", "Sample", "lightning_callback", "transformers_callback", "watch_trainer"]
