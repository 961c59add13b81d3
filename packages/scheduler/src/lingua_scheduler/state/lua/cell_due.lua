-- Claims due timers: returns them and moves each a little into the future, so that one instance
-- acts on it now and another one does if that instance dies. The acting scripts check again.
-- KEYS: due
-- ARGV: now_ms, limit, claim_ms
-- Returns: {OK, [timer ...]}
-- Writes: due
-- Cost: O(limit * log n)
--- @include "includes/cell"

local function cell_due(ARGV)
  local timers = redis.call('ZRANGEBYSCORE', DUE, '-inf', now, 'LIMIT', 0, tonumber(ARGV[2]))
  local again = now + tonumber(ARGV[3])
  for _, timer in ipairs(timers) do redis.call('ZADD', DUE, 'XX', again, timer) end
  return { Reply.OK, timers }
end
