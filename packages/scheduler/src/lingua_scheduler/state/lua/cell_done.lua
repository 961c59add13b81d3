-- Drops the timer of a slot in another cell after the slot was given back.
-- KEYS: due
-- ARGV: now_ms, timer
-- Returns: {OK, 0 | 1}
-- Writes: due
-- Cost: O(log n)
--- @include "includes/cell"

local function cell_done(ARGV)
  return { Reply.OK, redis.call('ZREM', DUE, ARGV[2]) }
end
