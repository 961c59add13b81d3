"""What operators inspect and repair in the store itself, also when no instance is alive."""
