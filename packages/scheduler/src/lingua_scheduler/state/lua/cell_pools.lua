-- The cell's pools, for the fleet snapshot and `explain`.
-- KEYS: due
-- ARGV: now_ms
-- Returns: {OK, now, [pool, descriptor json, members, free, offline ...], waiting jobs, nodes}
-- Writes: nothing
-- Cost: O(pools)
--- @include "includes/cell"
--- @include "includes/node_score"

local function cell_pools(ARGV)
  local pools, rows = redis.call('HGETALL', BASE .. 'pools'), {}
  for i = 1, #pools, 2 do
    local key = POOL .. pools[i]
    rows[#rows + 1] = pools[i]
    rows[#rows + 1] = pools[i + 1]
    rows[#rows + 1] = redis.call('ZCARD', key)
    rows[#rows + 1] = redis.call('ZCOUNT', key, '-inf', '(' .. FULL)
    rows[#rows + 1] = redis.call('ZCOUNT', key, OFFLINE, '+inf')
  end
  local waiting = redis.call('ZCARD', PENDING)
  local nodes = redis.call('ZCARD', BASE .. 'nodes')
  return { Reply.OK, now, rows, waiting, nodes }
end
