-- Records that a node's socket was lost. Only the socket that registered last counts, so that the
-- clean-up of an old one never affects its successor; for a dead instance any other instance calls
-- this for all of its nodes. The leases are returned to be moved, and again by timer until they
-- are.
-- KEYS: due
-- ARGV: now_ms, claim_ms, node, conn ('' = any, if it is on that instance), instance, keep_ms
--   (more than 0: the node was asked to reconnect elsewhere and keeps its jobs for that long)
-- Returns: {OK, [lease ...]} | {NO_NODE} | {FENCED}
-- Writes: node, pool, due; deletes streams
-- Cost: O(log n + leases)
--- @include "includes/cell"
--- @include "includes/node_score"
--- @include "includes/streams"

local function node_offline(ARGV)
  local node, key = ARGV[3], NODE .. ARGV[3]
  local known = redis.call('HMGET', key, 'conn', 'pool', 'instance', 'status')
  if not known[1] then return { Reply.NO_NODE } end
  if ARGV[4] ~= '' and known[1] ~= ARGV[4] then return { Reply.FENCED } end
  if ARGV[4] == '' and (known[3] ~= ARGV[5] or known[4] == 'offline') then
    return { Reply.FENCED }
  end
  redis.call('HSET', key, 'status', 'offline', 'block', OFFLINE, 'good', 0, 'bad', '', 'extra', 0)
  redis.call('ZADD', POOL .. known[2], OFFLINE, node)
  streams.drop(node, known[2])
  local keep_ms = tonumber(ARGV[6])
  if keep_ms > 0 then
    redis.call('ZADD', DUE, now + keep_ms, 'n|' .. node)
    return { Reply.OK, {} }
  end
  redis.call('ZADD', DUE, now + tonumber(ARGV[2]), 'n|' .. node)
  return { Reply.OK, redis.call('ZRANGE', LEASES .. node, 0, -1) }
end
