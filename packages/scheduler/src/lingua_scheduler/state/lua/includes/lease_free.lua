-- Giving a slot back.
--- @include "includes/node_score"
--- @include "includes/cell"
--- @include "includes/ranks"

-- Frees a slot; returns the node's fields if there was one to free.
local function lease_free(node, member, tie)
  if redis.call('ZREM', LEASES .. node, member) == 0 then return nil end
  leased_one_less(node)
  local n = node_read(node)
  if n[N_BLOCK] then
    ranks.set(n[N_POOL], node, node_score(n, leased_count(node), tie))
  end
  return n
end
