-- Puts an explicit outcome at an index without a job: a refused utterance, a request that already
-- has an answer, or a hole whose time has expired.
-- KEYS: due
-- ARGV: now_ms, policy, session, lane, index (-1 = every hole that is due), unwanted_from, reason,
--   fence (0 = any owner), ms and languages of the utterance (0 = not in the account), of the
--   answer: kind, job, attempt, payload, and others (msgpack map: audience, readers, readers_from,
--   lanes, for an utterance in a room; '' = it is for the speaker), stream (msgpack map:
--   top, heard, heard_ms, speech, if it ends a piece of the stream; '' = it does not)
-- Returns: {SETTLED, epoch, owner, session, outcomes} | {INDEX_RELEASED} | {INDEX_TAKEN}
--   | {INDEX_AHEAD} | {NO_SESSION} | {FENCED}
-- Writes: session (order), outbox, due; heard, said, relay and listeners' outboxes
-- Cost: O(fields of the session), at most FILL_AHEAD_MAX holes
--- @include "includes/cell"
--- @include "includes/lane"
--- @include "includes/stream"
--- @include "includes/release"
--- @include "includes/lane_walk"
--- @include "includes/account"
--- @include "includes/lane_entries"
--- @include "includes/readers_put"
--- @include "includes/readers_end"
local FILL_AHEAD_MAX = 256

-- Fills every hole whose time has expired, counted from the arrival of the first index above it.
-- Arms the timer for the next one.
local function fill_due_holes(s, lane, reason, policy)
  local session = s.session
  local key, timer = SESSION .. session, 'g|' .. session .. '|' .. lane
  local prefix = 'at:' .. lane .. ':'
  local entries, next_fire, oldest = lane_entries(key, lane), nil, math.huge
  for i = #entries, 1, -1 do
    oldest = math.min(oldest, entries[i][2])
    local at = i > 1 and entries[i - 1][1] + 1 or s.next
    while at < entries[i][1] do
      local after = lane_skip(s.skip, at)
      if not after and oldest + policy.gap_ms <= now then
        local entry = entry_missing(at, lane, reason)
        redis.call('HSET', key, prefix .. at, '=' .. oldest .. ' ' .. entry)
      elseif not after then
        next_fire = math.min(next_fire or math.huge, oldest + policy.gap_ms)
      end
      at = after or at + 1
    end
  end
  if next_fire then
    redis.call('ZADD', DUE, next_fire, timer)
  else
    redis.call('ZREM', DUE, timer)
  end
end

local function lane_fill(ARGV)
  local policy, session, lane = policy_of(ARGV[2]), ARGV[3], ARGV[4]
  local index, reason = tonumber(ARGV[5]), ARGV[7]
  local key, timer = SESSION .. session, 'g|' .. session .. '|' .. lane
  local prefix = 'at:' .. lane .. ':'
  local s = session_read(session, lane, index)
  if s.epoch == '' then
    redis.call('ZREM', DUE, timer)
    return { Reply.NO_SESSION }
  end

  if ARGV[8] ~= '0' and redis.call('HGET', key, 'fence') ~= ARGV[8] then return { Reply.FENCED } end

  local others = ARGV[15] ~= '' and cmsgpack.unpack(ARGV[15]) or {}

  if index < 0 then
    fill_due_holes(s, lane, reason, policy)
  else
    local unwanted = tonumber(ARGV[6])
    local spec = { session = session, lane = lane, index = index, unwanted_from = unwanted }
    local found = redis.call('HMGET', key, 'next:' .. lane, prefix .. index, 'lanes',
      'skip:' .. lane)
    local next_index = tonumber(found[1])
    local refused = lane_refuses(key, spec, next_index or 0, found[4], found[2], FILL_AHEAD_MAX)
    if refused == Reply.IN_FLIGHT_LIMIT then refused = Reply.INDEX_AHEAD end
    if refused then return { refused } end
    local about = ARGV[12] .. ' ' .. ARGV[13] .. ' ' .. reason
    local head = ARGV[11] .. ' ' .. index .. ' ' .. lane .. ' ' .. about
    local entry = others.audience and entry_for_others(head, others.audience, '', ARGV[14])
      or head .. '\n' .. ARGV[14]
    local order = { prefix .. index, '=' .. now .. ' ' .. entry }
    if not found[1] then order[3], order[4] = 'lanes', (found[3] or '') .. lane .. ' ' end
    if ARGV[16] ~= '' then
      -- Its outcome was released: the client must not send it again.
      local noted = redis.call('HMGET', key, 'top', 'heard')
      stream_note(order, noted[1], noted[2], cmsgpack.unpack(ARGV[16]))
    end
    spec.ms, spec.lanes = tonumber(ARGV[9]), tonumber(ARGV[10])
    -- The account of a closed session was already reported.
    if spec.ms > 0 and redis.call('HEXISTS', key, 'closed') == 0 then
      order[#order + 1] = 'ended'
      order[#order + 1] = account(key, s.ended, spec, fate_of(ARGV[11]))
    end
    local again = string.match(ARGV[12], '^=(.+)$')
    if again then
      order[#order + 1] = 'told:' .. again
      order[#order + 1] = index .. ' 0'
    end
    lane_put(key, spec, next_index, order, policy.gap_ms)
    s = session_read(session, lane, index)
  end
  local out, done, from = {}, {}, s.next
  lane_walk(session, lane, s, policy, out, done)
  if s.next ~= from then redis.call('HSET', key, 'seq', s.seq, 'next:' .. lane, s.next) end
  if #done > 0 then redis.call('HDEL', key, unpack(done)) end
  if others.readers then
    others.session, others.index = session, index
    readers_put(key, others, policy.gap_ms)
    local head = ARGV[12] .. ' ' .. ARGV[13] .. ' ' .. reason
    readers_end(others, ARGV[11], head, ARGV[14], policy, out)
  end
  return { Reply.SETTLED, s.epoch, s.owner, s.session, outcomes_of(out) }
end
