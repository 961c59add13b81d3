"""Measurements a user can repeat: lingua bench."""
