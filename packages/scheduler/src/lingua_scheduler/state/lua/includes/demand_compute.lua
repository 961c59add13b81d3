-- The answer for a demand, from all pools of the cell.
--- @include "includes/demand_rules"
--- @include "includes/cell"

-- Of two { breadth, pool }.
local function is_narrower(one, other)
  if one[1] ~= other[1] then return one[1] < other[1] end
  return one[2] < other[2]
end

local function demand_compute(demand)
  local fits, furthest = {}, 0
  local want, pools = demand_parts(demand), redis.call('HGETALL', BASE .. 'pools')
  for i = 1, #pools, 2 do
    local can = cjson.decode(pools[i + 1])
    local refused = demand_refuses(can, want, false)
    if not refused then
      fits[#fits + 1] = { can.breadth, pools[i] }
    elseif refused > furthest then
      furthest = refused
    end
  end
  table.sort(fits, is_narrower)
  local text, breadth = {}, nil
  for i = 1, #fits do
    text[i] = (fits[i][1] == breadth and ',' or ';') .. fits[i][2]
    breadth = fits[i][1]
  end
  return table.concat(text) .. '#' .. (REFUSED_AS[furthest] or 'no_nodes')
end
