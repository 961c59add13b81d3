-- A room is one hash `room:<code>`. Its fields: tenant, created_at, spoke_at, version (begins at
-- the time of its creation, so that a later room under the same code is newer), count (members),
-- joins (members so far), joined_at (when the last of them came), and for each member
--   m:<session>             '<place in the order> <joined_at> <home cell> <1 = has a name>\n<name>'
--   l:<session>             the language it wants to hear, '' = none
--   i:<session>             the instance that has its client
--   a:<session>             1 while its client is away
--   v:<session>|<speaker>   1 or 0: whether it wants that speaker's own voice
local ROOM = BASE .. 'room:'

local function room_changed(key)
  redis.call('HSET', key, 'version', redis.call('HGET', key, 'version') + 1)
end

-- The room's timer: the next look at its members, or the end of its idleness.
local function room_arm(code, key, policy)
  local idle_at = redis.call('HGET', key, 'spoke_at') + policy.idle_ms
  redis.call('ZADD', DUE, math.min(now + policy.check_ms, idle_at), 'room|' .. code)
end

local function room_end(code, key)
  redis.call('UNLINK', key)
  redis.call('ZREM', DUE, 'room|' .. code)
end

local function room_answer(reply, key)
  return { reply, now, redis.call('HGETALL', key) }
end

local function room_refuses(why)
  return { Reply.FENCED, now, why }
end
