-- The cell's own time, for operators and tools that compare stored times with it.
-- KEYS: due
-- ARGV: now_ms
-- Returns: {OK, now, the server's time}
-- Writes: clock
-- Cost: O(1)
--- @include "includes/cell"

local function cell_time(ARGV)
  return { Reply.OK, now, wall }
end
