"""The verbs `lingua bench` and `lingua demo`."""
