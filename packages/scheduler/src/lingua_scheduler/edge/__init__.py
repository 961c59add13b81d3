"""The door: one TCP port for WebSockets and HTTP, bounded in everything before anyone is known."""
