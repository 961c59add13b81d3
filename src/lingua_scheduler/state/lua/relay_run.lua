-- Goes on with what a speaker's listeners have not got yet: gives it to those of this cell, returns
-- what is for other cells, and tells the speaker what has reached everybody. Any instance may.
-- KEYS: due
-- ARGV: now_ms, policy, session, 'cell id'... (reached there since the last call)
-- Returns: {OK, epoch, owner, session, outcomes, [[id, kind and head, age_ms, payload, text,
--   [cell/session ...]] ...], 1 if more listeners of this cell only wait for their turn, else 0}
-- Writes: relay, heard, said, outboxes and sessions of listeners, outbox and session of the
--   speaker, due
-- Cost: O(outcomes that wait * listeners); so many of these get one that the step stays short
--- @include "includes/cell"
--- @include "includes/release"
--- @include "includes/relay"
-- Nothing else waits for this step, as it does for one that releases an outcome.
local LISTENERS_MORE = 4
local policy, session, done = cmsgpack.unpack(ARGV[2]), ARGV[3], {}
for i = 4, #ARGV do done[ARGV[i]] = true end
local key, s, out, ahead = BASE .. 'session:' .. session, session_read(session, '', 0), {}, {}
local before = s.seq
relay_walk(session, s, policy, done, out, LISTENERS_MORE * policy.hear_at_once, ahead)
if s.seq ~= before then
  redis.call('HSET', key, 'seq', s.seq)
  if redis.call('HEXISTS', key, 'closed') == 1 then
    redis.call('PEXPIRE', BASE .. 'outbox:' .. session, policy.resume_ms)
  end
end
return { Reply.OK, s.epoch, s.owner, session, outcomes_of(out), ahead, out.is_cut and 1 or 0 }
