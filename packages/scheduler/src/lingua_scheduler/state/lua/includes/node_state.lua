-- The state of a node between messages: timers, lost leases, and waiting jobs when it can take
-- work. Twin of the lifecycle rules: tests/model/node_health.py.
--- @include "includes/cell"
--- @include "includes/node_score"
--- @include "includes/serve_waiting"
--- @include "includes/streams"

-- The band of a node that gets no new work, independent of its load; 0 if it may get work.
local function node_block(status, drain, over)
  if status == 'offline' then return OFFLINE end
  if drain then return 5000000000 end
  if status ~= 'ready' then return 4000000000 end
  return over and 3000000000 or 0
end

-- The node's next timer: silence, a mark that expires, or leases that must be moved.
local function node_arm(node, at)
  redis.call('ZADD', DUE, at, 'n|' .. node)
end

local function node_leases(node)
  return redis.call('ZRANGE', LEASES .. node, 0, -1)
end

-- Updates the ranks of the node and, if it can take work, places waiting jobs on it.
local function node_settled(node, policy, placed)
  local n = node_read(node)
  local score = node_score(n, leased_count(node), 0)
  redis.call('ZADD', POOL .. n[N_POOL], score, node)
  streams.rank(node, 0)
  if score < FULL then serve_waiting(node, n[N_POOL], policy, placed) end
  return placed
end
