"""The verbs `lingua node`, `lingua models` and `lingua languages`."""
