"""Everything that lives in the Redis-protocol server: keys, scripts, connections."""
