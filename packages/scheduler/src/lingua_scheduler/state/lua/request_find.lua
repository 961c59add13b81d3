-- Finds the job of a named request, and its end if it has ended.
-- KEYS: due
-- ARGV: now_ms, job id, session (that asks; if it is of this cell)
-- Returns: {OK, told, state, outcome ('' = not ended), attempt, seq, reason, spec, answer}
--   | {NO_JOB, told} also if it was refused or cancelled: it is tried again
--   told: '<index> <seq, 0 = not yet>' if that session received the answer of another one, or ''
-- Writes: nothing
-- Cost: O(1)
--- @include "includes/cell"
--- @include "includes/unanswered"

local function request_find(ARGV)
  local told = redis.call('HGET', SESSION .. ARGV[3], 'told:' .. ARGV[2]) or ''
  local f = redis.call('HMGET', JOB .. ARGV[2], 'state', 'outcome', 'attempt', 'seq',
    'reason', 'spec', 'answer')
  if not f[1] or unanswered(f[1], f[2], f[5]) then return { Reply.NO_JOB, told } end
  return { Reply.OK, told, f[1], f[2] or '', tonumber(f[3]), tonumber(f[4] or 0), f[5] or '-', f[6],
    f[7] or '' }
end
