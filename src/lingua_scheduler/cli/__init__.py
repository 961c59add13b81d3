"""The lingua command."""
