-- Removes the outcomes that the client acknowledged (or that were sent to a client that cannot
-- acknowledge). What it acknowledged is noted: a resume from an earlier position is no loss then.
-- KEYS: due
-- ARGV: now_ms, session, epoch, seq, fence (0 = any owner), 1 = the client has acknowledged them
-- Returns: {OK, trimmed} | {NO_SESSION} | {EPOCH_CHANGED, epoch} | {TRIMMED, last_seq} beyond the
--   end | {FENCED}
-- Writes: outbox, session, heard
-- Cost: O(outcomes removed)
--- @include "includes/cell"
--- @include "includes/hear"

local function outbox_ack(ARGV)
  local session, seq = ARGV[2], tonumber(ARGV[4])
  local key = SESSION .. session
  local found = redis.call('HMGET', key, 'epoch', 'trimmed', 'seq', 'fence', 'hears')
  if not found[1] then return { Reply.NO_SESSION } end
  if ARGV[5] ~= '0' and found[4] ~= ARGV[5] then return { Reply.FENCED } end
  if ARGV[3] ~= found[1] then return { Reply.EPOCH_CHANGED, found[1] } end
  local trimmed = tonumber(found[2])
  if seq > tonumber(found[3]) then return { Reply.TRIMMED, tonumber(found[3]) } end
  if seq > trimmed then
    if found[5] then
      local outbox = OUTBOX .. session
      for _, entry in ipairs(redis.call('LRANGE', outbox, 0, seq - trimmed - 1)) do
        local id = heard_of(entry)
        if id then heard_drop(id, session) end
      end
    end
    redis.call('LTRIM', OUTBOX .. session, seq - trimmed, -1)
    redis.call('HSET', key, 'trimmed', seq)
    trimmed = seq
  end
  if ARGV[6] == '1' and seq >= trimmed then
    redis.call('HSET', key, 'confirmed', ARGV[3] .. ' ' .. ARGV[4])
  end
  return { Reply.OK, trimmed }
end
