-- Finding a node for a job in this cell and taking its slot: affinity, then the preferred node,
-- then the pools; a second try without the spread exclusion. Nothing is written when nobody can
-- take it.
--- @include "includes/pick"
--- @include "includes/assign"

local function tried_boots(tried)
  local skip, count = {}, 0
  if tried == '' then return skip, count end
  for node, boot in string.gmatch(tried, '([^@,]+)@([^,]*)') do
    if not skip[node] then count = count + 1 end
    skip[node] = boot
  end
  return skip, count
end

local function lease_expiry(policy)
  return now + policy.attempt_ms + policy.lease_grace_ms
end

-- The turn's node if it is in this cell, else the preferred one.
local function take_wanted(spec, pools, skip, member, expires_at, tie)
  --- @include "includes/take_named"
  local affinity = turn_affinity(spec)
  local cell, held = string.match(affinity or '', '^(.-)/(.*)$')
  if cell == CELL then
    local n = take_named(held, spec.demand, pools, skip, member, expires_at, tie)
    if n then return n, held end
  end
  if not spec.preferred then return nil end
  local wanted = spec.preferred
  return take_named(wanted, spec.demand, pools, skip, member, expires_at, tie), wanted
end

-- Picks, for once leaving out the node this session's last job went to.
local function pick_apart(spec, pools, skip, skips, tie, spread_ms)
  local last = redis.call('HMGET', BASE .. 'session:' .. spec.session, 'last_node', 'last_node_at')
  if not last[1] or now - last[2] >= spread_ms then return nil end
  local apart = {}
  for node, boot in pairs(skip) do apart[node] = boot end
  apart[last[1]] = '*'
  return pick(pools, apart, skips + 1, tie)
end

-- Returns the placement; or nil, code, label.
local function place(job, spec, attempt, tried, policy, ...)
  local member, expires_at, tie = job .. '|' .. attempt, lease_expiry(policy), job_tie(job)
  local skip, skips = tried_boots(tried)
  local pools = demand_pools(spec.demand)
  local n, node
  if spec.turn or spec.preferred then
    n, node = take_wanted(spec, pools, skip, member, expires_at, tie)
  end
  if not n then
    node = policy.spread and not spec.turn
      and pick_apart(spec, pools, skip, skips, tie, policy.spread_ms)
      or pick(pools, skip, skips, tie)
    if not node then return nil, refusal(pools) end
    n = lease_take(node, member, expires_at, tie)
    assert(n, 'the top of a pool could not take work')
  end
  return assign(job, spec, attempt, CELL, node, n, policy, ...)
end
