"""FlintMQ under frameworks that people use already: one module for each, thin, with an extra of its
name.

    taskiq       FlintBroker, FlintResultBackend, FlintScheduleSource
    celery       a transport of kombu, and a result backend
    fastapi      SSE and WebSocket endpoints that end in time
    sqlalchemy   a transactional outbox
    django       the connection of a project, and a transactional outbox
"""
