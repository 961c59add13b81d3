-- Continues with the outcomes that a speaker's listeners do not have yet: gives them to those of
-- this cell, returns those for other cells, and informs the speaker of those that all listeners
-- have. Any instance may call it.
-- KEYS: due
-- ARGV: now_ms, policy, session, 'cell id'... (reached there since the last call)
-- Returns: {OK, epoch, owner, session, outcomes, [[id, kind and head, age_ms, payload, text,
--   [cell/session ...]] ...], 1 if more listeners of this cell follow in the next step, else 0}
-- Writes: relay, heard, said, outboxes and sessions of listeners, outbox and session of the
--   speaker, due
-- Cost: O(waiting outcomes * listeners), with a bound of listeners per step
--- @include "includes/cell"
--- @include "includes/release"
--- @include "includes/relay"

local function relay_run(ARGV)
  -- No other step waits for this one, unlike a step that releases an outcome.
  local LISTENERS_MORE = 4
  local policy, session, done = policy_of(ARGV[2]), ARGV[3], {}
  for i = 4, #ARGV do done[ARGV[i]] = true end
  local key, s, out, ahead = SESSION .. session, session_read(session, '', 0), {}, {}
  local before = s.seq
  relay_walk(session, s, policy, done, out, LISTENERS_MORE * policy.hear_at_once, ahead)
  if s.seq ~= before then
    redis.call('HSET', key, 'seq', s.seq)
    if redis.call('HEXISTS', key, 'closed') == 1 then
      redis.call('PEXPIRE', OUTBOX .. session, policy.resume_ms)
    end
  end
  return { Reply.OK, s.epoch, s.owner, session, outcomes_of(out), ahead, out.is_cut and 1 or 0 }
end
