-- Releases one outcome. An entry is `kind index lane job attempt reason`, a
-- newline, and the payload: it is for the speaker. One for listeners begins with '+' and has, each
-- on a line before the payload, its listeners and the length of the text at its beginning.
--- @include "includes/cell"
--- @include "includes/relay"

local function entry_for_others(head, audience, text, payload)
  return '+' .. head .. '\n' .. audience .. '\n' .. #text .. '\n' .. text .. payload
end

-- The entry of an index without a job. In the lane of spoken texts nobody is informed: its readers
-- are not known, and the speaker is informed in the target languages.
local function entry_missing(at, lane, reason)
  local head = 'missing ' .. at .. ' ' .. lane .. ' - 0 ' .. reason
  if lane == '~' then return entry_for_others(head, '', '', '') end
  return head .. '\n'
end

-- `s`: the session's fields, whose `seq` follows. `out` collects seq, entry for the
-- speaker. Returns the position, 0 while it has none.
local function outcome_out(session, s, entry, policy, out)
  if string.byte(entry) == 43 then
    return relay_begin(session, s, entry, policy, out)
  end
  s.seq = s.seq + 1
  redis.call('RPUSH', OUTBOX .. session, entry)
  out[#out + 1], out[#out + 2] = s.seq, entry
  return s.seq
end

-- The released outcomes for the reply: those for the speaker; with those for listeners, and whether
-- some listeners do not have them yet, only if there are any, because each list of a reply costs
-- half a microsecond.
local function outcomes_of(out)
  if not out.heard and not out.is_relaying then return out end
  return { out, out.heard or 0, out.is_relaying and 1 or 0 }
end

-- A list of the reply; 0 stands for an empty one.
local function some(list)
  return list[1] and list or 0
end
