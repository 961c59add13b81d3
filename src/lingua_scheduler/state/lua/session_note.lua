-- Notes what a later owner of a session needs to go on: its languages as they are now, or where its
-- audio is (top, heard, heard_ms), unless a later utterance has noted more.
-- KEYS: due
-- ARGV: now_ms, session, fence, field, value, ...
-- Returns: {OK} | {NO_SESSION} | {FENCED}
-- Writes: session
-- Cost: O(1)
--- @include "includes/cell"
local key = BASE .. 'session:' .. ARGV[2]
local fence = redis.call('HGET', key, 'fence')
if not fence then return { Reply.NO_SESSION } end
if fence ~= ARGV[3] then return { Reply.FENCED } end
local fields, top = {}, tonumber(redis.call('HGET', key, 'top') or 0)
local is_late = false
for i = 4, #ARGV, 2 do is_late = is_late or ARGV[i] == 'top' and tonumber(ARGV[i + 1]) < top end
for i = 4, #ARGV, 2 do
  local name = ARGV[i]
  if not is_late or name ~= 'top' and name ~= 'heard' and name ~= 'heard_ms' then
    fields[#fields + 1], fields[#fields + 2] = name, ARGV[i + 1]
  end
end
if #fields > 0 then redis.call('HSET', key, unpack(fields)) end
return { Reply.OK }
