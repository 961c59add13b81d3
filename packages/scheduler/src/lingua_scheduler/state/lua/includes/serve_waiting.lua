-- A node of this cell can take work (again): place on it the waiting jobs it can serve, earliest
-- deadline first, until it is full. Bounded by its slots, by WAITING_DEMANDS_MAX and by LOOK_MAX.
--- @include "includes/cell"
--- @include "includes/queue"
--- @include "includes/place"
--- @include "includes/demand_admits"
--- @include "includes/rests"

local LOOK_MAX = 64 -- jobs that exclude this node must not hide the others

-- Returns false when the node is full.
local function serve_demand(node, demand, policy, placed)
  for _, job in ipairs(redis.call('ZRANGE', BASE .. 'queue:' .. demand, 0, LOOK_MAX - 1)) do
    local found = redis.call('HMGET', JOB .. job, 'spec', 'attempt', 'tried', 'rests')
    local attempt = tonumber(found[2] or 0) + 1
    local skip = tried_boots(left_out(found[3] or '', found[4]))
    if found[1] and not skipped(skip, node) then
      local n = lease_take(node, job .. '|' .. attempt, lease_expiry(policy), job_tie(job))
      if not n then return false end
      queue_remove(job, demand)
      local spec = cmsgpack.unpack(found[1])
      placed[#placed + 1] = assign(job, spec, attempt, CELL, node, n, policy) .. ' '
    end
  end
  return true
end

local function serve_waiting(node, pool, policy, placed)
  if kept and kept.is_none_waiting then return placed end
  if redis.call('EXISTS', WAITING) == 0 then
    if kept then kept.is_none_waiting = true end
    return placed
  end
  for _, demand in ipairs(redis.call('ZRANGE', WAITING, 0, WAITING_DEMANDS_MAX - 1)) do
    if demand_admits(demand, demand_pools(demand), node, pool)
      and not serve_demand(node, demand, policy, placed) then
      break
    end
  end
  return placed
end
