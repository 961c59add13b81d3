-- Gives back a slot held for a job of another cell; a job that waits here may get the slot.
-- KEYS: due
-- ARGV: now_ms, policy, node, member (job|attempt|home cell), lapsed_only (1 = only if it has
--   expired)
-- Returns: {OK, [placement ...]} freed now | {ALREADY} nothing to free | {NOT_DUE, expires_at}
-- Writes: leases, pool, reserved, due; the waiting job that takes the slot
-- Cost: O(log n)
--- @include "includes/cell"
--- @include "includes/lease_free"
--- @include "includes/serve_waiting"

local function lease_release(ARGV)
  local policy, node, member = policy_of(ARGV[2]), ARGV[3], ARGV[4]
  local expires_at = tonumber(redis.call('ZSCORE', LEASES .. node, member) or 0)
  if ARGV[5] == '1' and expires_at > now then
    redis.call('ZADD', DUE, expires_at, 'l|' .. node .. '|' .. member)
    return { Reply.NOT_DUE, expires_at }
  end
  redis.call('HDEL', BASE .. 'reserved', member)
  redis.call('ZREM', DUE, 'l|' .. node .. '|' .. member)
  local n = lease_free(node, member, job_tie(member))
  if not n then return { Reply.ALREADY } end
  local placed = {}
  if n[N_POOL] then serve_waiting(node, n[N_POOL], policy, placed) end
  return { Reply.OK, placed }
end
