"""The commands of operators: `lingua serve`, and those for a running service or its store."""
