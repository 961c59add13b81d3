"""Communication between instances: presence, inboxes, and the takeover of dead instances."""
