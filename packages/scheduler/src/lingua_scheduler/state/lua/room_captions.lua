-- Reads a room's captions in a language, after a number.
-- KEYS: due
-- ARGV: now_ms, code, tenant, language, born ('' = from the first), after, limit
-- Returns: {OK, now, born, last, [number, caption, ...]} ('' and 0 if there are none)
--   | {FENCED, now, 'no_room'}; another tenant's room is treated as missing
-- Writes: nothing
-- Cost: O(limit)
--- @include "includes/cell"
--- @include "includes/room"

local function room_captions(ARGV)
  if redis.call('HGET', room_key(ARGV[2]), 'tenant') ~= ARGV[3] then
    return room_refuses('no_room')
  end
  local key = BASE .. 'captions:' .. ARGV[2] .. '|' .. ARGV[4]
  local c = redis.call('HMGET', key, 'born', 'first', 'last')
  if not c[1] then return { Reply.OK, now, '', 0, {} } end
  local first, last, out = tonumber(c[2]), tonumber(c[3]), {}
  if ARGV[5] == c[1] then first = math.max(first, ARGV[6] + 1) end
  for number = first, math.min(last, first + ARGV[7] - 1) do
    out[#out + 1], out[#out + 2] = number, redis.call('HGET', key, number)
  end
  return { Reply.OK, now, c[1], last, out }
end
