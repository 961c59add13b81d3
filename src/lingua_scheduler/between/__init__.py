"""What instances say to each other, and what becomes of one that no longer says anything."""
