-- Ends a turn that has no closing piece of its own: silent slices end, the affinity is removed.
-- KEYS: due
-- ARGV: now_ms, policy, session, turn, fence (0 = any owner)
-- Returns: {SETTLED, epoch, owner, session, outcomes, [freed]} | {NO_SESSION}
--   | {FENCED}
-- Writes: session; as job_settle for silent slices
-- Cost: O(lanes * in_flight_max)
--- @include "includes/cell"
--- @include "includes/finish"
--- @include "includes/slices_end"

local function turn_end(ARGV)
  local policy, session, turn = policy_of(ARGV[2]), ARGV[3], ARGV[4]
  local key = SESSION .. session
  local found = redis.call('HMGET', key, 'epoch', 'owner', 'lanes', 'fence')
  if not found[1] then return { Reply.NO_SESSION } end
  if ARGV[5] ~= '0' and found[4] ~= ARGV[5] then return { Reply.FENCED } end
  local out, freed, forget = {}, {}, { 'turn:' .. turn }
  for lane in string.gmatch(found[3] or '', '[^ ]+') do
    slices_end(session, lane, turn, nil, math.huge, policy, out, freed)
    forget[#forget + 1] = 'turn:' .. turn .. '/' .. lane
  end
  redis.call('HDEL', key, unpack(forget))
  return { Reply.SETTLED, found[1], found[2], session, outcomes_of(out), freed }
end
