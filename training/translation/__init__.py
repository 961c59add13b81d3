"""Trains the small English-Spanish models that the project ships. See README.md."""
