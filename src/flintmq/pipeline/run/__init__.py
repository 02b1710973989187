"""A pipeline's flows as streaming queries."""
