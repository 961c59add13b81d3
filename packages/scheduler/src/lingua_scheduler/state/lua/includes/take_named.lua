-- Takes a slot of the named node if it may take the job and was not tried.
--- @include "includes/cell"
--- @include "includes/demand_admits"
--- @include "includes/pick"
local function take_named(node, demand, pools, skip, member, expires_at, tie)
  if skipped(skip, node) then return nil end
  local pool = redis.call('HGET', NODE .. node, 'pool')
  if not pool or not demand_admits(demand, pools, node, pool) then return nil end
  return lease_take(node, member, expires_at, tie)
end
