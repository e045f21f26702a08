"""Background work: the Celery application, its tasks and the training loop."""
