-- Whether a named node may take the job: its pool serves the demand, or the session is paired with
-- it.
local function demand_admits(demand, pools, node, pool)
  if string.find(pools, ',' .. pool, 1, true) or string.find(pools, ';' .. pool, 1, true) then
    return true
  end
  --- @include "includes/demand_rules"
  local rules = demand_rules()
  local want = rules.parts(demand)
  if want[7] ~= node then return false end
  local can = redis.call('HGET', BASE .. 'pools', pool)
  return can and rules.refuses(cjson.decode(can), want, true) == nil or false
end
