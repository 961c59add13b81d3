-- Finds the jobs of one utterance of a session whose outcomes were not released yet, one per
-- language.
-- KEYS: due
-- ARGV: now_ms, session, index
-- Returns: {OK, [job ...]} | {NO_SESSION}
-- Writes: nothing
-- Cost: O(languages)
--- @include "includes/cell"

local function job_find(ARGV)
  local key, found = SESSION .. ARGV[2], {}
  local lanes = redis.call('HMGET', key, 'epoch', 'lanes')
  if not lanes[1] then return { Reply.NO_SESSION } end
  for lane in string.gmatch(lanes[2] or '', '[^ ]+') do
    local entry = redis.call('HGET', key, 'at:' .. lane .. ':' .. ARGV[3]) or ''
    -- `<ms> <job>` until the job ends; then `=<ms> kind index lane job ...`.
    local job = string.match(entry, '^%d+ (.+)$') or string.match(entry, '^=%d+ %S+ %S+ %S+ (%S+)')
    if job and job ~= '-' then found[#found + 1] = job end
  end
  return { Reply.OK, found }
end
