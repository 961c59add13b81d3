-- The pools of this cell that serve a demand, narrow ones first. A demand is text:
-- directions|services|features|speech|tenant|labels|paired, each a comma list; a direction is
-- `src>tgt`, `*>tgt` (any source) or `src>` (no translation wanted). The answer is cached in the
-- hash `demands` until a pool is added or removed. It is `;id,id;id#reason`: groups of equally
-- broad pools, then the reason of the refused pool that passed most filters.
--- @include "includes/cell"
--- @include "includes/demand_compute"
local DEMANDS_MAX = 4096
-- The groups of pools of such an answer, parsed once: lists of pools, narrow ones first, each with
-- the place of a pool in it.
local PARSED_MAX = 1024
local parsed, parsed_count = {}, 0

local function pool_groups(pools)
  local groups = parsed[pools]
  if groups then return groups end
  if parsed_count >= PARSED_MAX then parsed, parsed_count = {}, 0 end
  groups = {}
  for text in string.gmatch(string.match(pools, '^[^#]*'), '[^;]+') do
    local group = { place = {} }
    for pool in string.gmatch(text, '[^,]+') do
      group[#group + 1] = pool
      group.place[pool] = #group
    end
    groups[#groups + 1] = group
  end
  parsed[pools], parsed_count = groups, parsed_count + 1
  return groups
end

local function demand_pools(demand)
  local known = kept and kept.demands[demand]
  if known then return known end
  known = redis.call('HGET', DEMANDS, demand)
  if known then
    if kept then kept.demands[demand] = known end
    return known
  end
  if redis.call('HLEN', DEMANDS) >= DEMANDS_MAX then
    redis.call('UNLINK', DEMANDS)
  end
  local computed = demand_compute(demand)
  redis.call('HSET', DEMANDS, demand, computed)
  return computed
end
