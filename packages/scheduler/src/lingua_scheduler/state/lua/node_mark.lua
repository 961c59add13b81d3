-- A node reported that a model is not available: the service is excluded from its abilities for a
-- while. Without a service, expired marks are dropped.
-- KEYS: due
-- ARGV: now_ms, policy, node, service ('' = drop expired marks)
-- Returns: {OK, pool, until, [placement ...]} marked | {DEBOUNCED} already known | {RATE_LIMITED}
--   | {RESTORED, pool, [placement ...]} | {NO_NODE}
-- Writes: marks, node, pool, pools, demands, due, streaming
-- Cost: O(log n)
--- @include "includes/cell"
--- @include "includes/lease"
--- @include "includes/serve_waiting"
--- @include "includes/node_pool"
--- @include "includes/node_state"

local function node_mark(ARGV)
  local policy, node, service = policy_of(ARGV[2]), ARGV[3], ARGV[4]
  local key, marks, timer = NODE .. ARGV[3], BASE .. 'marks:' .. ARGV[3], 'm|' .. ARGV[3]
  local known = redis.call('HMGET', key, 'can', 'pool', 'na_from', 'na_count')
  if not known[1] then
    redis.call('ZREM', DUE, timer)
    return { Reply.NO_NODE }
  end
  if service ~= '' then
    local from, count = tonumber(known[3] or 0), tonumber(known[4] or 0)
    if now - from >= policy.rate_window_ms then from, count = now, 0 end
    if count >= policy.rate_max then return { Reply.RATE_LIMITED } end
    redis.call('HSET', key, 'na_from', from, 'na_count', count + 1)
    local marked_at = tonumber(redis.call('ZSCORE', marks, service) or 0) - policy.unavailable_ms
    if now - marked_at < policy.debounce_ms then return { Reply.DEBOUNCED } end
    redis.call('ZADD', marks, now + policy.unavailable_ms, service)
  else
    redis.call('ZREMRANGEBYSCORE', marks, '-inf', now)
  end
  local first = redis.call('ZRANGE', marks, 0, 0, 'WITHSCORES')
  if first[1] then redis.call('ZADD', DUE, first[2], timer) else redis.call('ZREM', DUE, timer) end
  local pool = pool_enter(node, cmsgpack.unpack(known[1]), known[2])
  local placed = node_settled(node, policy, {})
  if service ~= '' then return { Reply.OK, pool, now + policy.unavailable_ms, placed } end
  return { Reply.RESTORED, pool, placed }
end
