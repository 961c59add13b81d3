-- Moves one entry to the dead letters, with its delivery data; repeated calls change nothing.
-- Fields unknown to this release are kept as `x:<name>`, so that a replay restores them.
-- KEYS: inbox
-- ARGV: now_ms, entry id, reason, maxlen (of the dead letters, about)
-- Returns: {OK, id of the dead letter} | {ALREADY, ''} the entry does not exist any more
-- Writes: dlq, inbox
-- Cost: O(log n)
--- @include "includes/inbox"

local function inbox_bury(ARGV)
  local id = ARGV[2]
  local entry = redis.call('XRANGE', INBOX, id, id)[1]
  if not entry then
    -- Already trimmed or moved; only its pending record may be left.
    if redis.call('EXISTS', INBOX) == 1 then redis.pcall('XACK', INBOX, GROUP, id) end
    return { Reply.ALREADY, '' }
  end
  local names = { v = 'version', k = 'kind', f = 'sender', c = 'correlation', a = 'attempt',
    t = 'sent_at', b = 'body' }
  local pending = redis.pcall('XPENDING', INBOX, GROUP, id, id, 1)
  local deliveries = not pending.err and pending[1] and pending[1][4] or 0
  local dead = { 'source', string.match(INBOX, '{i:(.-)}'), 'id', id, 'reason', ARGV[3],
    'deliveries', deliveries, 'moved_at', now }
  local fields = entry[2]
  for at = 1, #fields, 2 do
    dead[#dead + 1] = names[fields[at]] or 'x:' .. fields[at]
    dead[#dead + 1] = fields[at + 1]
  end
  local moved = redis.call('XADD', BASE .. 'dlq', 'MAXLEN', '~', ARGV[4], '*', unpack(dead))
  redis.pcall('XACK', INBOX, GROUP, id)
  redis.call('XDEL', INBOX, id)
  return { Reply.OK, moved }
end
