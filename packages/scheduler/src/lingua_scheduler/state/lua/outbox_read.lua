-- Reads a session's outcomes after a position, for a resuming client.
-- KEYS: due
-- ARGV: now_ms, session, epoch ('' = any), after_seq, limit, bytes_max (of one answer;
--   one entry at least)
-- Returns: {OK, epoch, last_seq, [seq, entry, ...]} | {NO_SESSION}
--   | {EPOCH_CHANGED, epoch} | {TRIMMED, trimmed, last_seq} the position is outside the kept
--     outcomes
-- Writes: nothing
-- Cost: O(limit)
--- @include "includes/cell"

local function outbox_read(ARGV)
  local session, after = ARGV[2], tonumber(ARGV[4])
  local found = redis.call('HMGET', SESSION .. session, 'epoch', 'trimmed', 'seq')
  if not found[1] then return { Reply.NO_SESSION } end
  if ARGV[3] ~= '' and ARGV[3] ~= found[1] then return { Reply.EPOCH_CHANGED, found[1] } end
  local trimmed, last = tonumber(found[2]), tonumber(found[3])
  if after < trimmed or after > last then return { Reply.TRIMMED, trimmed, last } end
  local from = after - trimmed
  local key, out, bytes = OUTBOX .. session, {}, 0
  -- One by one, because translated speech is large and a resuming client may have missed much.
  for i = 1, math.min(tonumber(ARGV[5]), last - after) do
    local entry = redis.call('LINDEX', key, from + i - 1)
    bytes = bytes + #entry
    if i > 1 and bytes > tonumber(ARGV[6]) then break end
    out[2 * i - 1], out[2 * i] = after + i, entry
  end
  return { Reply.OK, found[1], last, out }
end
