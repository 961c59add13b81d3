-- Checks a room whose timer is due: it ends after a long time without speech; else its members are
-- returned, so that the caller can check their sessions, and the timer is set again. Instances with
-- readers of captions that have fallen silent are removed.
-- KEYS: due
-- ARGV: now_ms, policy (as room_enter), code
-- Returns: {OK, now, [field, value, ...]} | {GONE, now, [...]} as it was when it ended
--   | {FENCED, now, 'no_room'}
-- Writes: due, room, captions (when it ends)
-- Cost: O(fields of the room)
--- @include "includes/cell"
--- @include "includes/room"

local function room_check(ARGV)
  local policy, code, key = policy_of(ARGV[2]), ARGV[3], room_key(ARGV[3])
  local spoke_at = tonumber(redis.call('HGET', key, 'spoke_at') or -1)
  if spoke_at < 0 then
    redis.call('ZREM', DUE, 'room|' .. code)
    return room_refuses('no_room')
  end
  if now - spoke_at >= policy.idle_ms then
    local answer = room_answer(Reply.GONE, key)
    room_end(code, key)
    return answer
  end
  local changed = false
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if string.sub(field, 1, 2) == 'r:' then
      local feeds = redis.call('HGET', key, field)
      changed = feeds_write(key, field, feeds_kept(feeds), feeds) or changed
    end
  end
  if changed then room_changed(key) end
  room_arm(code, key, policy)
  return room_answer(Reply.OK, key)
end
