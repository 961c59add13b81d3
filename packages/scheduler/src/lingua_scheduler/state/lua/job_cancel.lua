-- Ends a job that its speaker or its owner no longer wants; its outcome is released in order like
-- any other.
-- KEYS: due
-- ARGV: now_ms, policy, job id, reason
-- Returns: {SETTLED, epoch, owner, session, outcomes, [freed], [placement ...], attempt,
--   cell, node}
--   | {NO_JOB} | {JOB_ENDED}
-- Writes: as job_settle
-- Cost: O(log n + outcomes released)
--- @include "includes/cell"
--- @include "includes/finish"
--- @include "includes/serve_waiting"

local function job_cancel(ARGV)
  local policy, job = policy_of(ARGV[2]), ARGV[3]
  local record = job_read(job)
  if not record then return { Reply.NO_JOB } end
  if record.ended then return { Reply.JOB_ENDED } end
  local out, freed, placed = {}, {}, {}
  local n = job_unhold(job, record, freed)
  local s = job_finish(job, record, 'cancelled', ARGV[4], '', policy, out)
  if n and n[N_POOL] then serve_waiting(record.node, n[N_POOL], policy, placed) end
  return { Reply.SETTLED, s.epoch, s.owner, s.session, outcomes_of(out), freed, placed,
    record.attempt, record.cell or '', record.node }
end
