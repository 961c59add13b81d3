-- Puts an explicit outcome where no job is: an utterance that was refused, or a hole whose time is
-- up.
-- KEYS: due
-- ARGV: now_ms, policy, session, lane, index (-1 = every hole that is due), unwanted_from, reason,
--   fence (0 = any owner)
-- Returns: {SETTLED, epoch, owner, session, [seq, entry, ...]} | {INDEX_RELEASED} | {INDEX_TAKEN}
--   | {INDEX_AHEAD} | {NO_SESSION} | {FENCED}
-- Writes: session (order), outbox, due
-- Cost: O(fields of the session), at most FILL_AHEAD_MAX holes
--- @include "includes/cell"
--- @include "includes/lane"
--- @include "includes/release"
--- @include "includes/lane_walk"
local FILL_AHEAD_MAX = 256
local policy, session, lane = cmsgpack.unpack(ARGV[2]), ARGV[3], ARGV[4]
local index, reason = tonumber(ARGV[5]), ARGV[7]
local key, timer = BASE .. 'session:' .. session, 'g|' .. session .. '|' .. lane
local prefix = 'at:' .. lane .. ':'
local s = session_read(session, lane, index)
if s.epoch == '' then
  redis.call('ZREM', DUE, timer)
  return { Reply.NO_SESSION }
end

if ARGV[8] ~= '0' and redis.call('HGET', key, 'fence') ~= ARGV[8] then return { Reply.FENCED } end

local function missing(at)
  return 'missing ' .. at .. ' ' .. lane .. ' - 0 ' .. reason .. '\n'
end

-- Fills every hole whose time is up: its clock began when the first index above it came. Arms the
-- timer for the next one.
local function fill_due_holes()
  --- @include "includes/lane_entries"
  local entries, next_fire, oldest = lane_entries(key, lane), nil, math.huge
  for i = #entries, 1, -1 do
    oldest = math.min(oldest, entries[i][2])
    local at = i > 1 and entries[i - 1][1] + 1 or s.next
    while at < entries[i][1] do
      local after = lane_skip(s.skip, at)
      if not after and oldest + policy.gap_ms <= now then
        redis.call('HSET', key, prefix .. at, '=' .. oldest .. ' ' .. missing(at))
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

if index < 0 then
  fill_due_holes()
else
  local spec = { session = session, lane = lane, index = index, unwanted_from = tonumber(ARGV[6]) }
  local found = redis.call('HMGET', key, 'next:' .. lane, prefix .. index, 'lanes',
    'skip:' .. lane)
  local next_index = tonumber(found[1])
  local refused = lane_refuses(key, spec, next_index or 0, found[4], found[2], FILL_AHEAD_MAX)
  if refused == Reply.IN_FLIGHT_LIMIT then refused = Reply.INDEX_AHEAD end
  if refused then return { refused } end
  local order = { prefix .. index, '=' .. now .. ' ' .. missing(index) }
  if not found[1] then order[3], order[4] = 'lanes', (found[3] or '') .. lane .. ' ' end
  lane_put(key, spec, next_index, order, policy.gap_ms)
  s = session_read(session, lane, index)
end
local out, done, from = {}, {}, s.next
lane_walk(session, lane, s, policy.binding_ms, out, done)
if s.next ~= from then redis.call('HSET', key, 'seq', s.seq, 'next:' .. lane, s.next) end
if #done > 0 then redis.call('HDEL', key, unpack(done)) end
return { Reply.SETTLED, s.epoch, s.owner, s.session, out }
