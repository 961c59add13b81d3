-- The pools of this cell that serve a demand, narrow ones first. A demand is text:
-- directions|services|features|speech|tenant|labels|paired, each a comma list; a direction is
-- `src>tgt`, `*>tgt` (any source) or `src>` (no translation wanted). The answer is cached in the
-- hash `demands` until a pool is added or removed. It is `;id,id;id#reason`: groups of equally
-- broad pools, then the reason of the refused pool that passed most filters.
--- @include "includes/cell"
--- @include "includes/demand_compute"
local POOL_WIDTH = 13 -- 12 hex digits and the mark before them
local DEMANDS_MAX = 4096

local function demand_pools(demand)
  local known = redis.call('HGET', BASE .. 'demands', demand)
  if known then return known end
  if redis.call('HLEN', BASE .. 'demands') >= DEMANDS_MAX then
    redis.call('UNLINK', BASE .. 'demands')
  end
  local computed = demand_compute(demand)
  redis.call('HSET', BASE .. 'demands', demand, computed)
  return computed
end
