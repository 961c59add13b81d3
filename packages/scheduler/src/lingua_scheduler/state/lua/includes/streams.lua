-- Streams: a node listens to somebody who is speaking, which is a head start for the job that
-- follows. Each holds a lease of its own in `streams:<node>`, never a job slot. `streaming:<pool>`
-- ranks the nodes that can take a stream by their streams, as `pool:<pool>` ranks them by their
-- jobs; a node without a record there has no streams, or gets no work. Leases have no timers: an
-- expired one does not count, and is removed by the next step for its node. One table, because a
-- library has a limited number of locals.
--- @include "includes/cell"
--- @include "includes/node_score"
--- @include "includes/demand_admits"
local streams = {}

-- How many streams the node takes. The field is `<count> <socket>`: what it declared over another
-- socket does not count, because the instance of the present one may be of a release without
-- streams.
function streams.max(declared, conn)
  local count, on = string.match(declared or '', '^(%d+) (.*)$')
  return on == conn and tonumber(count) or 0
end

-- The pseudo-random number of a stream, whatever its id looks like.
function streams.tie(stream)
  return tonumber(string.sub(redis.sha1hex(stream), 1, 5), 16)
end

-- Updates the node's rank among the nodes of its pool that take streams.
function streams.rank(node, tie)
  local n = redis.call('HMGET', NODE .. node, 'block', 'pool', 'streams', 'conn')
  if not n[3] then return end
  local max, key = streams.max(n[3], n[4]), BASE .. 'streams:' .. node
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
  if n[1] ~= '0' or max == 0 then
    redis.call('ZREM', BASE .. 'streaming:' .. n[2], node)
    return
  end
  local score = load_score(redis.call('ZCARD', key), max, tie)
  redis.call('ZADD', BASE .. 'streaming:' .. n[2], score, node)
end

-- Takes a stream of the node if it has a free one and may do the work; returns its instance.
function streams.take(node, stream, expires_at, policy, demand, pools)
  local n = redis.call('HMGET', NODE .. node, 'block', 'pool', 'streams', 'conn', 'instance')
  local max = streams.max(n[3], n[4])
  if n[1] ~= '0' or max == 0 then return nil end
  if not demand_admits(demand, pools, node, n[2]) then return nil end
  local key, tie = BASE .. 'streams:' .. node, streams.tie(stream)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
  local used = redis.call('ZCARD', key)
  if used >= max then return nil end
  redis.call('ZADD', key, expires_at, stream)
  -- Other releases remove a node without its streams.
  redis.call('PEXPIRE', key, policy.binding_ms)
  redis.call('SET', BASE .. 'stream:' .. stream, node, 'PX', policy.binding_ms)
  redis.call('ZADD', BASE .. 'streaming:' .. n[2], load_score(used + 1, max, tie), node)
  return n[5]
end

-- Gives a stream back. Returns whether there was one. A late call for a former node of the stream
-- does not touch the present one.
function streams.free(node, stream)
  local key = BASE .. 'stream:' .. stream
  if redis.call('GET', key) == node then redis.call('DEL', key) end
  if redis.call('ZREM', BASE .. 'streams:' .. node, stream) == 0 then return 0 end
  streams.rank(node, streams.tie(stream))
  return 1
end

-- The node's socket is lost: with it the node forgets its streams.
function streams.drop(node, pool)
  redis.call('DEL', BASE .. 'streams:' .. node)
  redis.call('ZREM', BASE .. 'streaming:' .. pool, node)
end

-- The node of this cell that heard the stream of a job, or nil.
function streams.node_of(spec)
  local cell, node = string.match(spec.stream_node or '', '^(.-)/(.*)$')
  return cell == CELL and node or nil
end
