"""The state of the service as one stream: `GET /api/v1/events`, for the console and `lingua top`.

- `documents`: what the stream says, as types, and how an update follows from two states. Pure.
- `verdict`: whether all is well, and why not. Pure.
- `rates`: rows of the charts, from the buckets of all workers. Pure.
- `own_part`: what one worker knows by itself.
- `deployment`: puts the workers' parts and the store's rows together.
- `feed`: one producer for all readers, and their bounds.
- `pages`: the HTTP path.
"""
