-- First step of a placement for a job that lives in another cell: takes a slot here for a short
-- while.
-- KEYS: due
-- ARGV: now_ms, policy, job id, attempt, home cell, demand, only ('' = any node), tried
-- Returns: {RESERVED, node, boot, acks, instance, expires_at} also when repeated
--   | {refusal, label}
-- Writes: leases, pool, reserved, due
-- Cost: O(log n)
--- @include "includes/cell"
--- @include "includes/place"
--- @include "includes/take_named"
local policy, job, attempt = cmsgpack.unpack(ARGV[2]), ARGV[3], ARGV[4]
local home, demand, only = ARGV[5], ARGV[6], ARGV[7]
local member = job .. '|' .. attempt .. '|' .. home
local held = redis.call('HGET', BASE .. 'reserved', member)
if held then
  local expires_at = redis.call('ZSCORE', BASE .. 'leases:' .. held, member)
  local n = node_read(held)
  if expires_at and tonumber(expires_at) > now and n[1] then
    return { Reply.RESERVED, held, n[5], n[6], n[7] or '', tonumber(expires_at) }
  end
end
local expires_at, tie = now + policy.reserve_ms, job_tie(job)
local skip, skips = tried_boots(ARGV[8])
local pools, n, node = demand_pools(demand), nil, only
if only ~= '' then
  n = take_named(only, demand, pools, skip, member, expires_at, tie)
else
  node = pick(pools, skip, skips, tie)
  n = node and lease_take(node, member, expires_at, tie)
end
if not n then return { refusal(pools) } end
redis.call('HSET', BASE .. 'reserved', member, node)
redis.call('ZADD', DUE, expires_at, 'l|' .. node .. '|' .. member)
return { Reply.RESERVED, node, n[5], n[6], n[7] or '', expires_at }
