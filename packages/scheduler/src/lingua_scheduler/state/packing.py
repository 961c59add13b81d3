"""MessagePack as the scripts use it: arguments are packed, and specs of jobs read."""

from __future__ import annotations

import msgspec

from lingua_scheduler.state.records import JobSpec

pack = msgspec.msgpack.Encoder().encode
read_spec = msgspec.msgpack.Decoder(JobSpec).decode
