-- Takes sessions out of a room; the room ends with its last member. The caller may be late: a
-- session that entered again, or that is now on another instance, stays.
-- KEYS: due
-- ARGV: now_ms, code, instance ('' = any), session, joined_at ('' = any), ...
-- Returns: {OK, now, [field, value, ...]} the whole room, no fields if it has ended
--   | {ALREADY, now, [...]} none of them was a member | {FENCED, now, 'no_room'}
-- Writes: room, due, captions (when it ends)
-- Cost: O(fields of the room + sessions)
--- @include "includes/cell"
--- @include "includes/room"

local function room_leave(ARGV)
  local key, gone, count = room_key(ARGV[2]), {}, 0
  if redis.call('EXISTS', key) == 0 then return room_refuses('no_room') end
  for i = 4, #ARGV, 2 do
    local session = ARGV[i]
    local m = redis.call('HMGET', key, 'm:' .. session, 'i:' .. session)
    local is_meant = m[1] and (ARGV[3] == '' or m[2] == ARGV[3])
      and (ARGV[i + 1] == '' or string.match(m[1], '^%d+ (%d+) ') == ARGV[i + 1])
    if is_meant then
      redis.call('HDEL', key, 'm:' .. session, 'l:' .. session, 'i:' .. session, 'a:' .. session)
      gone[session] = true
      count = count + 1
    end
  end
  if count == 0 then return room_answer(Reply.ALREADY, key) end
  local left = redis.call('HGET', key, 'count') - count
  if left <= 0 then
    room_end(ARGV[2], key)
    return { Reply.OK, now, {} }
  end
  for _, field in ipairs(redis.call('HKEYS', key)) do
    local listener, speaker = string.match(field, '^v:([^|]+)|(.+)$')
    if listener and (gone[listener] or gone[speaker]) then redis.call('HDEL', key, field) end
  end
  redis.call('HSET', key, 'count', left)
  room_changed(key)
  return room_answer(Reply.OK, key)
end
