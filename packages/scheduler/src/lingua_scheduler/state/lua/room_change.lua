-- Changes a field of a member: its language, a wanted original voice, the instance or the
-- connection of its client; or stores the time of its speech, which others need not know.
-- KEYS: due
-- ARGV: now_ms, code, session, what (lang | instance | voice |
--   away | spoke), value, speaker (of voice)
-- Returns: {OK, now, [field, value, ...]} the whole room | {FENCED, now, 'no_room' | 'not_in'}
-- Writes: room
-- Cost: O(fields of the room)
--- @include "includes/cell"
--- @include "includes/room"

local function room_change(ARGV)
  local key, session, what = room_key(ARGV[2]), ARGV[3], ARGV[4]
  if redis.call('EXISTS', key) == 0 then return room_refuses('no_room') end
  if redis.call('HEXISTS', key, 'm:' .. session) == 0 then return room_refuses('not_in') end
  if what == 'spoke' then
    redis.call('HSET', key, 'spoke_at', now)
    return room_answer(Reply.OK, key)
  end
  local field = 'l:' .. session
  if what == 'away' then field = 'a:' .. session end
  if what == 'instance' then
    field = 'i:' .. session
    redis.call('HDEL', key, 'a:' .. session)
  end
  if what == 'voice' then
    if redis.call('HEXISTS', key, 'm:' .. ARGV[6]) == 0 then return room_refuses('not_in') end
    field = 'v:' .. session .. '|' .. ARGV[6]
  end
  redis.call('HSET', key, field, ARGV[5])
  room_changed(key)
  return room_answer(Reply.OK, key)
end
