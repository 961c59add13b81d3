-- Third step of a placement in another cell: the reserved slot is held for the whole attempt.
-- KEYS: due
-- ARGV: now_ms, node, member (job|attempt|home cell), hold_ms (a duration, because each
--   cell has its own time)
-- Returns: {OK} | {LEASE_LAPSED} the slot was given back, or it expired and the node is full: the
--   job must be moved, unless it has ended
-- Writes: leases, pool, reserved, due
-- Cost: O(log n)
--- @include "includes/cell"
--- @include "includes/lease"

local function lease_confirm(ARGV)
  local node, member, expires_at = ARGV[2], ARGV[3], now + ARGV[4]
  local key, timer = LEASES .. node, 'l|' .. ARGV[2] .. '|' .. ARGV[3]
  local held = redis.call('ZSCORE', key, member)
  if held and tonumber(held) > now then
    redis.call('ZADD', key, expires_at, member)
  elseif not held or not lease_take(node, member, expires_at, job_tie(member)) then
    redis.call('ZREM', key, member)
    redis.call('HDEL', BASE .. 'reserved', member)
    redis.call('ZREM', DUE, timer)
    return { Reply.LEASE_LAPSED }
  end
  redis.call('HSET', BASE .. 'reserved', member, node)
  redis.call('ZADD', DUE, expires_at, timer)
  return { Reply.OK }
end
