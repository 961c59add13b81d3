-- A room is one hash `room:<code>`. Its fields: tenant, created_at, spoke_at, version (starts at
-- the time of its creation, so that a later room with the same code is newer), count (members),
-- joins (members so far), joined_at (the last entry), and for each member
--   m:<session>             '<place in the order> <joined_at> <home cell> <1 = has a name>\n<name>'
--   l:<session>             its target language, '' = none
--   i:<session>             the instance of its client
--   a:<session>             1 while its client is disconnected
--   v:<session>|<speaker>   1 or 0: whether it wants that speaker's original voice
-- and for each language
--   r:<language>            instances with readers of captions: '<instance> <until> <readers> ...'
--   c:<language>            1 if it has captions (includes/caption.lua)
--- @include "includes/cell"
local function room_key(code)
  return BASE .. 'room:' .. code
end

local function room_changed(key)
  redis.call('HSET', key, 'version', redis.call('HGET', key, 'version') + 1)
end

-- The room's timer: the next check of its members, or the end by idleness.
local function room_arm(code, key, policy)
  local idle_at = redis.call('HGET', key, 'spoke_at') + policy.idle_ms
  redis.call('ZADD', DUE, math.min(now + policy.check_ms, idle_at), 'room|' .. code)
end

-- The instances of a field `r:<language>` that have not fallen silent, without `left_out`.
local function feeds_kept(feeds, left_out)
  local kept = {}
  for instance, till, readers in string.gmatch(feeds or '', '(%S+) (%d+) (%d+)') do
    if instance ~= left_out and tonumber(till) > now then
      kept[#kept + 1] = instance .. ' ' .. till .. ' ' .. readers
    end
  end
  return table.concat(kept, ' ')
end

-- Writes the instances with readers of a language; tells whether that changed the room.
local function feeds_write(key, field, feeds, before)
  if feeds == (before or '') then return false end
  if feeds == '' then redis.call('HDEL', key, field) else redis.call('HSET', key, field, feeds) end
  return true
end

local function room_end(code, key)
  for _, field in ipairs(redis.call('HKEYS', key)) do
    local lang = string.match(field, '^c:(.+)$')
    if lang then redis.call('UNLINK', BASE .. 'captions:' .. code .. '|' .. lang) end
  end
  redis.call('UNLINK', key)
  redis.call('ZREM', DUE, 'room|' .. code)
end

local function room_answer(reply, key)
  return { reply, now, redis.call('HGETALL', key) }
end

local function room_refuses(why)
  return { Reply.FENCED, now, why }
end
