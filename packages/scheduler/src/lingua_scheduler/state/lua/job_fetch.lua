-- Reads a job for the instance that pushes it to its node. The caller must name the holder, which
-- is one process of a node: a later process of the node must not begin this attempt.
-- KEYS: due
-- ARGV: now_ms, job id, attempt, node, boot ('' = any process of the node), audio (1 = with the
--   audio)
-- Returns: {OK, spec, body, audio, owner of its session, ms left for the attempt} | {NO_JOB}
--   | {STALE_ATTEMPT, current}
--   | {NODE_MISMATCH, holder} | {JOB_ENDED}
-- Writes: nothing
-- Cost: O(size of the audio)
--- @include "includes/cell"

local function job_fetch(ARGV)
  local state, attempt, node, spec_text, body, ends_at, boot = unpack(redis.call('HMGET',
    JOB .. ARGV[2], 'state', 'attempt', 'node', 'spec', 'body', 'ends_at', 'boot'))
  if not state then return { Reply.NO_JOB } end
  if state == 'FINISHED' or state == 'RELEASED' then return { Reply.JOB_ENDED } end
  if attempt ~= ARGV[3] or (node or '') == '' then
    return { Reply.STALE_ATTEMPT, tonumber(attempt) }
  end
  if node ~= ARGV[4] or (ARGV[5] ~= '' and boot ~= ARGV[5]) then
    return { Reply.NODE_MISMATCH, node }
  end
  local spec, audio = cmsgpack.unpack(spec_text), ''
  if ARGV[6] == '1' and spec.own_audio then
    audio = redis.call('HGET', JOB .. ARGV[2], 'audio') or ''
  elseif ARGV[6] == '1' and spec.audio then
    local audio_key = BASE .. 'audio:' .. spec.session .. '|' .. spec.index
    audio = redis.call('HGET', audio_key, 'audio') or ''
  end
  local owner = redis.call('HGET', SESSION .. spec.session, 'owner') or ''
  return { Reply.OK, spec_text, body, audio, owner, math.max(1, tonumber(ends_at) - now) }
end
