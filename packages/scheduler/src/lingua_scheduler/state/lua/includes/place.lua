-- Finds a node for a job in this cell and takes its slot: the turn's nodes, then the one that heard
-- its stream, then the preferred one, then the pools. With `spread` the first job of a turn avoids
-- the node of the session's last job, with a second try without that. Nothing is written if no node
-- can take the job.
--- @include "includes/pick"
--- @include "includes/assign"
--- @include "includes/cell"
--- @include "includes/take_named"
--- @include "includes/streams"

local NONE = {}

local function tried_boots(tried)
  if tried == '' then return NONE, 0 end
  local skip, count = {}, 0
  for node, boot in string.gmatch(tried, '([^@,]+)@([^,]*)') do
    if not skip[node] then count = count + 1 end
    skip[node] = boot
  end
  return skip, count
end

local function lease_expiry(policy)
  return now + policy.attempt_ms + policy.lease_grace_ms
end

-- The first of the turn's nodes in this cell that can take it, else the one that heard its stream,
-- else the preferred one. Returns its fields, its name, whether the turn has a node in any cell,
-- and why this one.
local function take_wanted(spec, pools, skip, member, expires_at, tie)
  local nodes = turn_nodes(spec)
  for _, holder in ipairs(nodes) do
    local cell, held = string.match(holder, '^(.-)/(.*)$')
    local n = cell == CELL and take_named(held, spec.demand, pools, skip, member, expires_at, tie)
    if n then return n, held, true, held == spec.preferred and 'preferred' or 'turn' end
  end
  local heard = streams.node_of(spec)
  local n = heard and take_named(heard, spec.demand, pools, skip, member, expires_at, tie)
  if n then return n, heard, #nodes > 0, 'stream' end
  local wanted = spec.preferred
  n = wanted and take_named(wanted, spec.demand, pools, skip, member, expires_at, tie) or nil
  return n, wanted, #nodes > 0, 'preferred'
end

-- The node of this session's last job, if that was recent.
local function spread_from(spec, spread_ms)
  local last = redis.call('HMGET', SESSION .. spec.session, 'last_node', 'last_node_at')
  return last[1] and now - last[2] < spread_ms and last[1] or nil
end

-- The instance of the job's session; '' if the session is not known.
local function session_owner(spec)
  return redis.call('HGET', SESSION .. spec.session, 'owner') or ''
end

-- Picks a node other than this one.
local function pick_apart(pools, skip, skips, tie, avoid, near, sticky, prefix)
  local apart = {}
  for node, boot in pairs(skip) do apart[node] = boot end
  apart[avoid] = '*'
  return pick(pools, apart, skips + 1, tie, near, sticky, prefix)
end

-- near: the instance of the job's session. apart: no second try here without the spread exclusion,
-- because other cells are asked with it first; 'wanted' = only the nodes that are asked before the
-- pools. Returns the placement; or nil, code, label, the node to avoid.
local function place(job, spec, attempt, tried, near, policy, apart, ...)
  local member, tie = job .. '|' .. text_of(attempt), job_tie(job)
  local expires_at = lease_expiry(policy)
  local skip, skips = tried_boots(tried)
  local pools, sticky = demand_pools(spec.demand), policy.sticky_pools and spec or nil
  local n, node, in_turn, how
  looked = policy.explains and {} or nil
  if spec.turn or spec.preferred or spec.stream then
    n, node, in_turn, how = take_wanted(spec, pools, skip, member, expires_at, tie)
  end
  if not n and apart == 'wanted' then
    return nil, Reply.NO_AVAILABLE_NODE, 'affinity_elsewhere', ''
  end
  if not n then
    local avoid = policy.spread and not in_turn and spread_from(spec, policy.spread_ms) or nil
    node = avoid and pick_apart(pools, skip, skips, tie, avoid, near, sticky) or nil
    if not node and not (avoid and apart) then
      node = pick(pools, skip, skips, tie, near, sticky)
    end
    how = rank
    if not node then
      local code, label = refusal(pools)
      return nil, code, label, avoid or ''
    end
    n = lease_take(node, member, expires_at, tie)
    assert(n, 'the top of a pool could not take work')
  end
  local placement = assign(job, spec, attempt, CELL, node, n, policy, ...) .. ' ' .. how
  return looked and placement .. '\n' .. table.concat(looked, '\n') or placement
end
