-- Reads the account of a session's speech, also of a closed one within the resume window.
-- KEYS: due
-- ARGV: now_ms, session
-- Returns: {OK, ['delivered silent skipped failed' in ms, '<ms without a job> <of these in the
--   stream>', ms of the stream that became jobs, the end of the last of these, silence at its end
--   or -1]}
--   | {NO_SESSION}
-- Writes: nothing
-- Cost: O(1)
--- @include "includes/cell"
--- @include "includes/speech"

local function session_speech(ARGV)
  local key = SESSION .. ARGV[2]
  if redis.call('EXISTS', key) == 0 then return { Reply.NO_SESSION } end
  return { Reply.OK, speech_of(key) }
end
