-- Goes on with what a speaker's listeners have not got yet: gives it to those of this cell, returns
-- what is for other cells, and tells the speaker what has reached everybody. Any instance may.
-- KEYS: due
-- ARGV: now_ms, policy, session, 'cell id'... (reached there since the last call)
-- Returns: {OK, epoch, owner, session, outcomes, [[id, kind and head, age_ms, payload, text,
--   [cell/session ...]] ...]}
-- Writes: relay, heard, said, outboxes and sessions of listeners, outbox and session of the
--   speaker, due
-- Cost: O(outcomes that wait * listeners)
--- @include "includes/cell"
--- @include "includes/release"
--- @include "includes/relay"
local policy, session, done = cmsgpack.unpack(ARGV[2]), ARGV[3], {}
for i = 4, #ARGV do done[ARGV[i]] = true end
local key, s, out, ahead = BASE .. 'session:' .. session, session_read(session, '', 0), {}, {}
local before = s.seq
relay_walk(session, s, policy, done, out, ahead)
if s.seq ~= before then
  redis.call('HSET', key, 'seq', s.seq)
  if redis.call('HEXISTS', key, 'closed') == 1 then
    redis.call('PEXPIRE', BASE .. 'outbox:' .. session, policy.resume_ms)
  end
end
return { Reply.OK, s.epoch, s.owner, session, outcomes_of(out), ahead }
