-- Which pools of this cell can do what a job needs, specialists first.
-- A demand is text: directions|services|features|speech|tenant|labels|paired, each a comma list;
-- a direction is `src>tgt`, `*>tgt` (any source) or `src>` (no translation wanted).
-- The answer is kept in the hash `demands` until a pool appears or disappears. It reads
-- `;id,id;id#reason`: groups of equally broad pools, then why the refused pool that came furthest
-- failed.
local POOL_WIDTH = 13 -- 12 hex digits and the mark before them

local function demand_pools(demand)
  local known = redis.call('HGET', BASE .. 'demands', demand)
  if known then return known end
  --- @include "includes/demand_compute"
  local DEMANDS_MAX = 4096
  if redis.call('HLEN', BASE .. 'demands') >= DEMANDS_MAX then
    redis.call('UNLINK', BASE .. 'demands')
  end
  local computed = demand_compute(demand)
  redis.call('HSET', BASE .. 'demands', demand, computed)
  return computed
end
