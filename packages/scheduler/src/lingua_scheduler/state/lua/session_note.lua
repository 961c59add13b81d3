-- Stores what a later owner of a session needs: its current languages, or the position in its audio
-- (includes/stream.lua), unless a later utterance has stored a later one.
-- KEYS: due
-- ARGV: now_ms, session, fence, heard_after (-1 = nothing before it), field, value, ...
-- Returns: {OK} | {NO_SESSION} | {FENCED} | {TOO_EARLY} earlier speech is not stored yet
-- Writes: session
-- Cost: O(1)
--- @include "includes/cell"
--- @include "includes/stream"

local function session_note(ARGV)
  local key = SESSION .. ARGV[2]
  local s = redis.call('HMGET', key, 'fence', 'top', 'heard')
  if not s[1] then return { Reply.NO_SESSION } end
  if s[1] ~= ARGV[3] then return { Reply.FENCED } end
  if tonumber(s[3] or -1) < tonumber(ARGV[4]) then return { Reply.TOO_EARLY } end
  local fields = {}
  stream_fields(fields, s[2], s[3], ARGV, 5)
  if #fields > 0 then redis.call('HSET', key, unpack(fields)) end
  return { Reply.OK }
end
