"""Tasks per second and the latency of a task, beside Celery, dramatiq, taskiq and NATS."""
