-- Leases: a node's slots, each held by one attempt (`job|attempt`, and the job's cell if that is
-- another) until an expiry. Never a counter.
--- @include "includes/node_score"
--- @include "includes/cell"

-- Takes a slot of `node` if it can take work now; returns the node's fields, or nil.
local function lease_take(node, member, expires_at, tie)
  local n = node_read(node)
  if not n[N_BLOCK] then return nil end
  local leased = leased_count(node)
  if node_score(n, leased, tie) >= FULL then return nil end
  redis.call('ZADD', BASE .. 'leases:' .. node, expires_at, member)
  redis.call('ZADD', BASE .. 'pool:' .. n[N_POOL], node_score(n, leased + 1, tie), node)
  return n
end
