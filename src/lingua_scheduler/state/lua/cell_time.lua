-- The cell's own time, for people and tools that compare what is stored with it.
-- KEYS: due
-- ARGV: now_ms
-- Returns: {OK, now, the server's time}
-- Writes: clock
-- Cost: O(1)
--- @include "includes/cell"
return { Reply.OK, now, wall }
