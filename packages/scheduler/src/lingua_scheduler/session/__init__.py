"""One conversation: the order of its outcomes."""
