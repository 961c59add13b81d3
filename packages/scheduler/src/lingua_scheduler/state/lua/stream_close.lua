-- Closes a stream: its utterance was cut, dropped, or its job is submitted in another cell.
-- KEYS: due
-- ARGV: now_ms, node, stream id
-- Returns: {OK, 0 | 1 it was open}
-- Writes: streams, streaming, stream
-- Cost: O(log n)
--- @include "includes/cell"
--- @include "includes/streams"

local function stream_close(ARGV)
  return { Reply.OK, streams.free(ARGV[2], ARGV[3]) }
end
