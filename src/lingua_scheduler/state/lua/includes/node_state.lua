-- The life of a node between messages: timers, lost leases, and what follows when it can take work.
-- Twin of the lifecycle rules: nodes/health.py.

-- The band that keeps a node from new work, whatever its load: 0 when none does.
local function node_block(status, drain, over)
  if status == 'offline' then return OFFLINE end
  if drain then return 5000000000 end
  if status ~= 'ready' then return 4000000000 end
  return over and 3000000000 or 0
end

-- Where the node's next timer stands: silence, a mark that ends, or leases that must be moved.
local function node_arm(node, at)
  redis.call('ZADD', DUE, at, 'n|' .. node)
end

local function node_leases(node)
  return redis.call('ZRANGE', BASE .. 'leases:' .. node, 0, -1)
end

-- Rescores the node and, if it can take work, serves who waits.
local function node_settled(node, policy, placed)
  local n = node_read(node)
  local score = node_score(n, leased_count(node), 0)
  redis.call('ZADD', BASE .. 'pool:' .. n[4], score, node)
  if score < FULL then serve_waiting(node, n[4], policy, placed) end
  return placed
end
