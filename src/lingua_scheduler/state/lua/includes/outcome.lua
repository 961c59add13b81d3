-- An outcome whose turn has come goes out. An entry is `kind index lane job attempt reason`, a
-- newline, and the payload: it is for the speaker. One for others begins with '+' and has, each on
-- a line of its own before the payload, who hears it and the length of the text that comes first.

local function entry_for_others(head, audience, text, payload)
  return '+' .. head .. '\n' .. audience .. '\n' .. #text .. '\n' .. text .. payload
end

-- Of a place that nobody's job has. Among texts as they were spoken nobody is told of it: who would
-- have read it was never said, and the speaker is told in the languages it speaks into.
local function entry_missing(at, lane, reason)
  local head = 'missing ' .. at .. ' ' .. lane .. ' - 0 ' .. reason
  if lane == '~' then return entry_for_others(head, '', '', '') end
  return head .. '\n'
end

-- `s`: the session's fields, whose `seq` follows. `out` collects seq, entry of what the speaker is
-- told. Returns the position, 0 while it has none.
local function outcome_out(session, s, entry, out)
  if string.byte(entry) == 43 then
    --- @include "includes/relay"
    return relay_begin(session, s, entry, out)
  end
  s.seq = s.seq + 1
  redis.call('RPUSH', BASE .. 'outbox:' .. session, entry)
  out[#out + 1], out[#out + 2] = s.seq, entry
  return s.seq
end

-- What went out, as replies carry it: for the speaker, for listeners, and whether some of these are
-- still to be reached.
local function outcomes_of(out)
  return { out, out.heard or {}, out.is_relaying and 1 or 0 }
end
