-- First step of a placement for a job of another cell: takes a slot of this cell for a short time.
-- KEYS: due
-- ARGV: now_ms, policy, job id, attempt, home cell, demand, only ('' = any node), tried, avoid
--   (a node to leave out whatever its process; '' = none)
-- Returns: {RESERVED, node, boot, acks, instance, expires_at} also when repeated; a slot of
--   another node than the only one asked for is given back first
--   | {refusal, label}
-- Writes: leases, pool, reserved, due
-- Cost: O(log n)
--- @include "includes/cell"
--- @include "includes/place"
--- @include "includes/take_named"
--- @include "includes/lease_free"

local function lease_reserve(ARGV)
  local policy, job, attempt = policy_of(ARGV[2]), ARGV[3], ARGV[4]
  local home, demand, only = ARGV[5], ARGV[6], ARGV[7]
  local member = job .. '|' .. attempt .. '|' .. home
  local held = redis.call('HGET', BASE .. 'reserved', member)
  if held and only ~= '' and held ~= only then
    lease_free(held, member, job_tie(job))
    redis.call('HDEL', BASE .. 'reserved', member)
    redis.call('ZREM', DUE, 'l|' .. held .. '|' .. member)
  elseif held then
    local expires_at = redis.call('ZSCORE', LEASES .. held, member)
    local n = node_read(held)
    if expires_at and tonumber(expires_at) > now and n[N_BLOCK] then
      return { Reply.RESERVED, held, n[N_BOOT], n[N_ACKS], n[N_INSTANCE] or '',
        tonumber(expires_at) }
    end
  end
  local expires_at, tie = now + policy.reserve_ms, job_tie(job)
  local skip, skips = tried_boots(ARGV[8])
  local pools, n, node = demand_pools(demand), nil, only
  if only ~= '' then
    n = take_named(only, demand, pools, skip, member, expires_at, tie)
  else
    node = ARGV[9] ~= '' and pick_apart(pools, skip, skips, tie, ARGV[9], '')
      or ARGV[9] == '' and pick(pools, skip, skips, tie, '') or nil
    n = node and lease_take(node, member, expires_at, tie)
  end
  if not n then return { refusal(pools) } end
  redis.call('HSET', BASE .. 'reserved', member, node)
  redis.call('ZADD', DUE, expires_at, 'l|' .. node .. '|' .. member)
  return { Reply.RESERVED, node, n[N_BOOT], n[N_ACKS], n[N_INSTANCE] or '', expires_at }
end
