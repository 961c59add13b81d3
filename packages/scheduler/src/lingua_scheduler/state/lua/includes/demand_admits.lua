-- Whether a named node may take the job: its pool serves the demand, or the session is paired with
-- it.
--- @include "includes/cell"
--- @include "includes/demand_rules"
local function demand_admits(demand, pools, node, pool)
  if string.find(pools, ',' .. pool, 1, true) or string.find(pools, ';' .. pool, 1, true) then
    return true
  end
  local want = demand_parts(demand)
  if want[D_PAIRED] ~= node then return false end
  local can = redis.call('HGET', BASE .. 'pools', pool)
  return can and demand_refuses(cjson.decode(can), want, true) == nil or false
end
