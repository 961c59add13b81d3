-- Removes an inbox without open entries: none unread, and none read but not applied. Entries that
-- were acknowledged but not deleted do not count.
-- KEYS: inbox
-- ARGV: now_ms
-- Returns: {OK, 1 | 0 it existed} | {NOT_DUE, entries pending, 1 | 0 some unread}
-- Writes: inbox
-- Cost: O(log n)
--- @include "includes/inbox"

local function inbox_remove(ARGV)
  if redis.call('EXISTS', INBOX) == 0 then return { Reply.OK, 0 } end
  local read_to, pending = '0-0', 0
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', INBOX)) do
    local about = {}
    for at = 1, #group, 2 do about[group[at]] = group[at + 1] end
    if about.name == GROUP then read_to, pending = about['last-delivered-id'], about.pending end
  end
  -- Pending entries that were trimmed are lost; the others must be applied first.
  local unread = #redis.call('XRANGE', INBOX, '(' .. read_to, '+', 'COUNT', 1)
  if unread > 0 or (pending > 0 and redis.call('XLEN', INBOX) > 0) then
    return { Reply.NOT_DUE, pending, unread }
  end
  redis.call('DEL', INBOX)
  return { Reply.OK, 1 }
end
