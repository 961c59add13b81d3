-- An operator or the node itself stops (or lets flow again) new work; running work goes on.
-- KEYS: due
-- ARGV: now_ms, policy, node, drain (0 | 1)
-- Returns: {OK, leases left, [placement ...]} | {NO_NODE}
-- Writes: node, pool
-- Cost: O(log n)
--- @include "includes/cell"
--- @include "includes/lease"
--- @include "includes/serve_waiting"
--- @include "includes/node_state"
local policy, node = cmsgpack.unpack(ARGV[2]), ARGV[3]
local key = BASE .. 'node:' .. node
local known = redis.call('HMGET', key, 'status', 'over')
if not known[1] then return { Reply.NO_NODE } end
redis.call('HSET', key, 'drain', ARGV[4],
  'block', node_block(known[1], ARGV[4] == '1', known[2] == '1'))
local placed = node_settled(node, policy, {})
return { Reply.OK, leased_count(node), placed }
