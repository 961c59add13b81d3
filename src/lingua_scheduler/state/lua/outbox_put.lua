-- Puts an outcome of another session (a speaker's) into a listener's outbox, at a position of the
-- listener's own. Once: what is not newer than the latest of that speaker is there already.
-- KEYS: due
-- ARGV: now_ms, session, speaker, speaker_epoch, speaker_seq, outbox_max, entry, rooms (codes with
--   spaces between: it is only for who is in one of them; '' = whoever)
-- Returns: {OK, epoch, owner, seq} | {ALREADY, epoch, owner, seq (0 = not known any more)}
--   | {NO_SESSION} | {SESSION_CLOSED} | {OUTBOX_FULL} | {FENCED} it is in none of these rooms
-- Writes: outbox, session. Its field `from:<speaker>` is
--   '<speaker_epoch>:<speaker_seq>:<epoch>:<seq>' of the latest one
-- Cost: O(1)
--- @include "includes/cell"
local key, from = BASE .. 'session:' .. ARGV[2], 'from:' .. ARGV[3]
local s = redis.call('HMGET', key, 'epoch', 'owner', 'closed', 'seq', 'trimmed', from, 'room')
if not s[1] then return { Reply.NO_SESSION } end
if s[3] then return { Reply.SESSION_CLOSED } end
-- Without a note (the store forgot the session once) the caller's own knowledge counts.
if ARGV[8] ~= '' and s[7]
  and not string.find(' ' .. ARGV[8] .. ' ', ' ' .. s[7] .. ' ', 1, true) then
  return { Reply.FENCED }
end
local epoch, seq, own_epoch, own_seq =
  string.match(s[6] or '', '^(%d+):(%d+):([^:]*):(%d+)$')
if epoch then
  local by_epoch, by_seq = tonumber(ARGV[4]) - epoch, tonumber(ARGV[5]) - seq
  if by_epoch < 0 or (by_epoch == 0 and by_seq <= 0) then
    local is_same = by_epoch == 0 and by_seq == 0 and own_epoch == s[1]
    return { Reply.ALREADY, s[1], s[2], is_same and tonumber(own_seq) or 0 }
  end
end
if s[4] - s[5] >= tonumber(ARGV[6]) then return { Reply.OUTBOX_FULL } end
local own = s[4] + 1
redis.call('RPUSH', BASE .. 'outbox:' .. ARGV[2], ARGV[7])
redis.call('HSET', key, 'seq', own,
  from, ARGV[4] .. ':' .. ARGV[5] .. ':' .. s[1] .. ':' .. string.format('%.0f', own))
return { Reply.OK, s[1], s[2], own }
