-- Ends a job with the outcome its holder reports, and releases what that lets pass in order.
-- KEYS: due
-- ARGV: now_ms, policy, job id, attempt, node, kind (completed | completed_no_text | failed),
-- reason,
--   payload
-- Returns: {SETTLED, epoch, owner, session, [seq, entry, ...], [freed foreign lease ...],
-- [placement ...]}
--   | {ALREADY, outcome, seq} same attempt and holder settled before
--   | {NO_JOB} | {STALE_ATTEMPT, current} | {NODE_MISMATCH, holder} | {JOB_ENDED, outcome}
-- Writes: job, session (order), outbox, leases, pool, due; the waiting job that takes the freed
-- slot
-- Cost: O(log n + outcomes released)
--- @include "includes/cell"
--- @include "includes/finish"
--- @include "includes/serve_waiting"
local job, attempt, node = ARGV[3], tonumber(ARGV[4]), ARGV[5]
local record = job_read(job)
if not record then return { Reply.NO_JOB } end
if record.attempt ~= attempt or record.node == '' then
  return { Reply.STALE_ATTEMPT, record.attempt }
end
if record.node ~= node then return { Reply.NODE_MISMATCH, record.node } end
if record.ended then
  local outcome = redis.call('HGET', BASE .. 'job:' .. job, 'outcome')
  if outcome == ARGV[6] then return { Reply.ALREADY, outcome, tonumber(record.seq or 0) } end
  return { Reply.JOB_ENDED, outcome }
end

local policy, spec = cmsgpack.unpack(ARGV[2]), record.spec
local out, freed, placed = {}, {}, {}
if spec.closes_turn then
  --- @include "includes/slices_end"
  slices_end(spec.session, spec.lane, spec.turn, node, spec.index - 1, policy, out, freed)
end
local n = job_unhold(job, record, freed)
local s = job_finish(job, record, ARGV[6], ARGV[7], ARGV[8], policy, out)
if n and n[4] then serve_waiting(node, n[4], policy, placed) end
return { Reply.SETTLED, s.epoch, s.owner, s.session, out, freed, placed }
