"""What operators look at and put right in the store itself, also when no instance lives."""
