-- Leases: a node's slots, each held by one attempt (`job|attempt`, and the job's cell if that is
-- another) until an expiry. Never a counter.
--- @include "includes/node_score"
--- @include "includes/cell"
--- @include "includes/ranks"

-- Takes a slot of `node` if it can take work now; returns the node's fields, or nil.
local function lease_take(node, member, expires_at, tie)
  local n = node_read(node)
  if n[N_BLOCK] ~= '0' then return nil end
  local leased, max = leased_count(node), n[N_MAX]
  local used = leased + n[N_EXTRA]
  if used >= max then return nil end
  redis.call('ZADD', LEASES .. node, text_of(expires_at), member)
  leased_one_more(node, leased + 1)
  ranks.set(n[N_POOL], node, load_score(used + 1, max, tie))
  return n
end
