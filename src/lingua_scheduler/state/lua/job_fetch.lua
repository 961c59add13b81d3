-- Reads a job for the instance that must push it, or that has its node: only as its holder, which
-- is a process of a node: one that came after it under the same name must not begin its attempt.
-- KEYS: due
-- ARGV: now_ms, job id, attempt, node, boot ('' = any process of the node), audio (1 = with the
--   audio)
-- Returns: {OK, spec, body, audio, owner of its session, ms left for the attempt} | {NO_JOB}
--   | {STALE_ATTEMPT, current}
--   | {NODE_MISMATCH, holder} | {JOB_ENDED}
-- Writes: nothing
-- Cost: O(size of the audio)
--- @include "includes/cell"
local f = redis.call('HMGET', BASE .. 'job:' .. ARGV[2], 'state', 'attempt', 'node', 'spec', 'body',
  'ends_at', 'boot')
if not f[1] then return { Reply.NO_JOB } end
if f[1] == 'FINISHED' or f[1] == 'RELEASED' then return { Reply.JOB_ENDED } end
if f[2] ~= ARGV[3] or (f[3] or '') == '' then return { Reply.STALE_ATTEMPT, tonumber(f[2]) } end
if f[3] ~= ARGV[4] or (ARGV[5] ~= '' and f[7] ~= ARGV[5]) then
  return { Reply.NODE_MISMATCH, f[3] }
end
local spec, audio = cmsgpack.unpack(f[4]), ''
if ARGV[6] == '1' and spec.audio then
  local audio_key = BASE .. 'audio:' .. spec.session .. '|' .. spec.index
  audio = redis.call('HGET', audio_key, 'audio') or ''
end
local owner = redis.call('HGET', BASE .. 'session:' .. spec.session, 'owner') or ''
return { Reply.OK, f[4], f[5], audio, owner, math.max(1, tonumber(f[6]) - now) }
