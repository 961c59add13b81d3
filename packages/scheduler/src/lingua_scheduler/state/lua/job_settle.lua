-- Ends a job with the outcome that its holder reports, and releases all outcomes that are next.
-- KEYS: due
-- ARGV: now_ms, policy, job id, attempt, node, kind (completed | completed_no_text | failed),
--   payload; if there is one: reason (`-`: none), text (the payload without sound, if it is for
--   listeners)
-- Returns: `epoch owner session seq entry` if this job's outcome is the only effect, its entry
--   without its payload
--   | {SETTLED, epoch, owner, session, outcomes, [freed foreign lease ...] | 0,
--   [placement ...] | 0}:
--   outcomes are [seq, entry, ...] for the speaker, this job's entry without its payload; if
--   listeners are concerned, a list of these, of [[id, kind and head, [listener, owner, epoch, seq,
--   ...]] ...] | 0, and of 1 if some listeners do not have it yet, else 0
--   | {ALREADY, outcome, seq} same attempt and holder settled before
--   | {NO_JOB} | {STALE_ATTEMPT, current} | {NODE_MISMATCH, holder} | {JOB_ENDED, outcome}
-- Writes: job, session (order), outbox, leases, pool, due; the waiting job that takes the freed
--   slot; heard, said, relay and listeners' outboxes
-- Cost: O(log n + outcomes released * listeners)
--- @include "includes/cell"
--- @include "includes/finish"
--- @include "includes/slices_end"
--- @include "includes/serve_waiting"

-- The usual answer in one text, because each item of a list costs as much; nil if there is more to
-- tell. `own`: the place of this job's entry in `out`.
local function settled_text(s, spec, out, own, freed, placed)
  if own ~= 2 or #out ~= 2 or freed[1] or placed[1] then return nil end
  if spec.audience or out.heard or out.is_relaying then return nil end
  return s.epoch .. ' ' .. s.owner .. ' ' .. s.session .. ' ' .. text_of(out[1]) .. ' ' .. out[2]
end

local function job_settle(ARGV)
  local policy, job, attempt, node = policy_of(ARGV[2]), ARGV[3], number_of(ARGV[4]), ARGV[5]
  local kind, payload, reason, text = ARGV[6], ARGV[7], ARGV[8] or '-', ARGV[9] or ''
  local record = job_read(job)
  if not record then return { Reply.NO_JOB } end
  if record.attempt ~= attempt or record.node == '' then
    return { Reply.STALE_ATTEMPT, record.attempt }
  end
  if record.node ~= node then return { Reply.NODE_MISMATCH, record.node } end
  if record.ended then
    local known = redis.call('HMGET', JOB .. job, 'outcome', 'seq')
    if known[1] == kind then return { Reply.ALREADY, known[1], tonumber(known[2] or 0) } end
    return { Reply.JOB_ENDED, known[1] }
  end

  local spec, out, freed, placed = record.spec, {}, {}, {}
  if spec.closes_turn then
    slices_end(spec.session, spec.lane, spec.turn, node, spec.index - 1, policy, out, freed)
  end
  local n = job_unhold(job, record, freed)
  local own = #out + 2
  local s = job_finish(job, record, kind, reason, payload, policy, out, text)
  -- The payload is not returned: translated speech is large, and the caller has it.
  if out[own] and not spec.audience then out[own] = string.sub(out[own], 1, -1 - #payload) end
  if n and n[N_POOL] then serve_waiting(node, n[N_POOL], policy, placed) end
  local told = settled_text(s, spec, out, own, freed, placed)
  if told then return told end
  return { Reply.SETTLED, s.epoch, s.owner, s.session, outcomes_of(out), some(freed),
    some(placed) }
end
