-- Stops or resumes new work of a node, for an operator or the node itself; running work continues.
-- A drain by an operator (`hold`) is ended only by an operator; a node's own drain ends with its
-- process.
-- KEYS: due
-- ARGV: now_ms, policy, node, drain (0 | 1), operator (0 | 1)
-- Returns: {OK, leases left, [placement ...]} | {NO_NODE}
-- Writes: node, pool, streaming
-- Cost: O(log n)
--- @include "includes/cell"
--- @include "includes/lease"
--- @include "includes/serve_waiting"
--- @include "includes/node_state"

local function node_drain(ARGV)
  local policy, node = policy_of(ARGV[2]), ARGV[3]
  local key = NODE .. node
  local known = redis.call('HMGET', key, 'status', 'over', 'hold')
  if not known[1] then return { Reply.NO_NODE } end
  local hold = ARGV[5] == '1' and ARGV[4] or known[3] or '0'
  local drain = (ARGV[4] == '1' or hold == '1') and '1' or '0'
  redis.call('HSET', key, 'drain', drain, 'hold', hold,
    'block', node_block(known[1], drain == '1', known[2] == '1'))
  local placed = node_settled(node, policy, {})
  return { Reply.OK, leased_count(node), placed }
end
