"""The verbs `lingua translate` and `lingua up`."""
