"""Training runs that confirm a predicted geometry: `train(spec, context)`, without Celery."""
