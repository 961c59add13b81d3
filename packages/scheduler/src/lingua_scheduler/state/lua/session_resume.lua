-- Resumes a session for its client under a new owner, and returns all that the owner needs. The
-- fence increases, so that later calls of the former owner are refused.
-- KEYS: due
-- ARGV: now_ms, session, owner (instance), tenant, token, lease_ms, epoch, after_seq (the client's
--   position)
-- Returns: {RESUMED, epoch, fence, previous owner, about, heard, heard_ms, top, seq, [lane, next
--   unknown index, ...], [index of an open outcome ...], [turn that was not closed ...],
--   [the account of its speech: as session_speech.lua], [index, ms, languages, best fate so far,
--   languages that ended, ...] of utterances that have not ended in all languages}
--   | {NO_SESSION} | {SESSION_CLOSED} | {FENCED} not its token or tenant
--   | {TRIMMED, trimmed, seq} outcomes after the position are not kept, and were not
--     acknowledged
-- Writes: session, due
-- Cost: O(fields of the session)
--- @include "includes/cell"
--- @include "includes/lane_entries"
--- @include "includes/speech"

local function session_resume(ARGV)
  local session, key = ARGV[2], SESSION .. ARGV[2]
  local epoch, former_owner, closed, former_fence, tenant, token, about, heard, heard_ms, top, last,
    first, lane_names, confirmed = unpack(redis.call('HMGET', key, 'epoch', 'owner', 'closed',
      'fence', 'tenant', 'token', 'about', 'heard', 'heard_ms', 'top', 'seq', 'trimmed', 'lanes',
      'confirmed'))
  if not epoch then return { Reply.NO_SESSION } end
  if tenant ~= ARGV[4] or (token or '') == '' or token ~= ARGV[5] then return { Reply.FENCED } end
  if closed then return { Reply.SESSION_CLOSED } end
  local after, seq, trimmed = tonumber(ARGV[8]), tonumber(last), tonumber(first)
  -- While this request was on its way the client may have received, and acknowledged, more on its
  -- former socket.
  local confirmed_in, upto = string.match(confirmed or '', '^(%d+) (%d+)$')
  if confirmed_in == epoch then after = math.max(after, tonumber(upto)) end
  if epoch == ARGV[7] and after < trimmed then return { Reply.TRIMMED, trimmed, seq } end
  if epoch == ARGV[7] and after > seq then
    -- The client has outcomes that the store lost: positions start anew.
    epoch = string.format('%.0f', math.max(now, wall, epoch + 1))
    seq = redis.call('LLEN', OUTBOX .. session)
    redis.call('HSET', key, 'epoch', epoch, 'trimmed', 0, 'seq', seq)
  end
  local fence = former_fence + 1
  redis.call('HSET', key, 'owner', ARGV[3], 'fence', fence)
  redis.call('ZADD', DUE, now + ARGV[6], 's|' .. session)
  local lanes, open, turns, unsettled, seen = {}, {}, {}, {}, {}
  for lane in string.gmatch(lane_names or '', '[^ ]+') do
    local known = tonumber(redis.call('HGET', key, 'next:' .. lane) or 0)
    for _, entry in ipairs(lane_entries(key, lane)) do
      if lane ~= '~' then open[#open + 1] = entry[1] end
      known = math.max(known, entry[1] + 1)
      local job = not seen[entry[1]] and string.match(entry[3], '^%d+ (.+)$')
      local found = job and redis.call('HGET', JOB .. job, 'spec')
      local spec = found and cmsgpack.unpack(found)
      if spec and spec.ms and redis.call('HEXISTS', key, 'of:' .. entry[1]) == 0 then
        seen[entry[1]] = true
        unsettled[#unsettled + 1] = { entry[1], spec.ms, spec.lanes or 1, 4, '' }
      end
    end
    lanes[#lanes + 1], lanes[#lanes + 2] = lane, known
  end
  -- Outcomes that listeners do not have yet are still open for the speaker.
  for _, line in ipairs(redis.call('LRANGE', BASE .. 'relay:' .. session, 0, -1)) do
    local index, lane = string.match(line, '^%S+ %d+ %S+ (%d+) (%S+)')
    if lane ~= '~' then open[#open + 1] = tonumber(index) end
  end
  for _, field in ipairs(redis.call('HKEYS', key)) do
    local turn = string.match(field, '^turn:([^/]+)$')
    if turn then turns[#turns + 1] = turn end
    local index = string.match(field, '^of:(%d+)$')
    if index then
      local ms, of, best, ended =
        string.match(redis.call('HGET', key, field), '^(%d+) (%d+) (%d) (.*)$')
      unsettled[#unsettled + 1] =
        { tonumber(index), tonumber(ms), tonumber(of), tonumber(best), ended }
    end
  end
  table.sort(unsettled, is_before)
  return { Reply.RESUMED, epoch, fence, former_owner, about or '', tonumber(heard or -1),
    tonumber(heard_ms or 0), tonumber(top or 0), seq, lanes, open, turns, speech_of(key),
    unsettled }
end
