-- Moves a held job forward: dispatched to its node, accepted by it, running on it. Idempotent: a
-- later state answers OK and stays. The path of speech does not wait for it.
-- KEYS: due
-- ARGV: now_ms, job id, attempt, node, state (DISPATCHED | ACCEPTED | RUNNING)
-- Returns: {OK, state} | {NO_JOB} | {STALE_ATTEMPT, current} | {NODE_MISMATCH, holder} |
--   {JOB_ENDED}
-- Writes: job; due (an accepted job is given its whole attempt time)
-- Cost: O(log n)
--- @include "includes/cell"
local RANK = { CREATED = 0, DISPATCHED = 1, ACCEPTED = 2, RUNNING = 3, FINISHED = 4, RELEASED = 5 }

local function job_mark(ARGV)
  local job, attempt, node, state = ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
  local key = JOB .. job
  local record = redis.call('HMGET', key, 'state', 'attempt', 'node', 'ends_at')
  if not record[1] then return { Reply.NO_JOB } end
  if tonumber(record[2]) ~= attempt or not record[3] or record[3] == '' then
    return { Reply.STALE_ATTEMPT, tonumber(record[2]) }
  end
  if record[3] ~= node then return { Reply.NODE_MISMATCH, record[3] } end
  if RANK[record[1]] > RANK.RUNNING then return { Reply.JOB_ENDED } end
  if RANK[state] <= RANK[record[1]] then return { Reply.OK, record[1] } end
  if RANK[state] >= RANK.ACCEPTED then
    redis.call('HSET', key, 'state', state, 'due_at', record[4])
    redis.call('ZADD', DUE, record[4], 'j|' .. job)
  else
    redis.call('HSET', key, 'state', state)
  end
  return { Reply.OK, state }
end
