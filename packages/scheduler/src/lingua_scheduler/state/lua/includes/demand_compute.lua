-- The answer for a demand, from all pools of the cell.
--- @include "includes/demand_rules"

local function demand_compute(demand)
  local rules, fits, furthest = demand_rules(), {}, 0
  local want, pools = rules.parts(demand), redis.call('HGETALL', BASE .. 'pools')
  for i = 1, #pools, 2 do
    local can = cjson.decode(pools[i + 1])
    local refused = rules.refuses(can, want, false)
    if not refused then
      fits[#fits + 1] = { can.breadth, pools[i] }
    elseif refused > furthest then
      furthest = refused
    end
  end
  table.sort(fits, function(a, b)
    if a[1] ~= b[1] then return a[1] < b[1] end
    return a[2] < b[2]
  end)
  local text, breadth = {}, nil
  for i = 1, #fits do
    text[i] = (fits[i][1] == breadth and ',' or ';') .. fits[i][2]
    breadth = fits[i][1]
  end
  return table.concat(text) .. '#' .. (rules.reasons[furthest] or 'no_nodes')
end
