-- Checks a node whose timer is due: silence, leases that must still be moved, or removal after a
-- long silence (not while an operator drains it, because the drain must survive).
-- KEYS: due
-- ARGV: now_ms, policy, node
-- Returns: {OK, status, [lease to move ...]} | {GONE} removed | {NO_NODE}
-- Writes: node, pool, due; or deletes node, leases, marks, streams
-- Cost: O(log n + leases)
--- @include "includes/cell"
--- @include "includes/lease"
--- @include "includes/node_pool"
--- @include "includes/streams"

local function node_check(ARGV)
  local policy, node = policy_of(ARGV[2]), ARGV[3]
  local key, timer = NODE .. node, 'n|' .. ARGV[3]
  local known_status, beat_at, silence_ms, pool, orphans, hold = unpack(
    redis.call('HMGET', key, 'status', 'beat_at', 'silence_ms', 'pool', 'orphans', 'hold'))
  if not known_status then
    redis.call('ZREM', DUE, timer)
    return { Reply.NO_NODE }
  end
  local status, silent_at = known_status, tonumber(beat_at) + tonumber(silence_ms)
  if status ~= 'offline' and silent_at <= now then
    status = 'offline'
    redis.call('HSET', key, 'status', status, 'block', OFFLINE, 'good', 0, 'bad', '', 'extra', 0)
    redis.call('ZADD', POOL .. pool, OFFLINE, node)
    streams.drop(node, pool)
  end

  local move, leases = {}, redis.call('ZRANGE', LEASES .. node, 0, -1)
  for _, lease in ipairs(leases) do
    if status == 'offline' or string.find(',' .. orphans .. ',', ',' .. lease .. ',', 1, true) then
      move[#move + 1] = lease
    end
  end
  if status ~= 'offline' and #move == 0 and orphans ~= '' then
    redis.call('HSET', key, 'orphans', '')
  end
  if #move > 0 then
    redis.call('ZADD', DUE, now + policy.claim_ms, timer)
  elseif status ~= 'offline' then
    redis.call('ZADD', DUE, silent_at, timer)
  else
    local forget_at = tonumber(beat_at) + policy.stale_ms
    if hold == '1' then forget_at = now + policy.stale_ms end
    if forget_at <= now then
      pool_leave(node, pool)
      redis.call('ZREM', BASE .. 'nodes', node)
      redis.call('DEL', key, LEASES .. node, BASE .. 'marks:' .. node, BASE .. 'streams:' .. node)
      redis.call('ZREM', DUE, timer, 'm|' .. node)
      return { Reply.GONE }
    end
    redis.call('ZADD', DUE, forget_at, timer)
  end
  return { Reply.OK, status, move }
end
