-- What a later owner of a session continues with: `top`, the next free index, and the end of the
-- admitted stream: `heard`, the last chunk, `heard_ms`, its end, `speech`, how much of it became
-- jobs. A late call (another language, a retry) does not lower stored values. Adds to `fields` the
-- values of `note` that are newer than the session's `top` and `heard`.
--- @include "includes/call"
local function stream_note(fields, top, heard, note)
  if note.top and tonumber(note.top) >= (number_of(top) or 0) then
    fields[#fields + 1], fields[#fields + 2] = 'top', note.top
  end
  if not note.heard or tonumber(note.heard) <= tonumber(heard or -1) then return end
  fields[#fields + 1], fields[#fields + 2] = 'heard', note.heard
  fields[#fields + 1], fields[#fields + 2] = 'heard_ms', note.heard_ms or 0
  if note.speech then fields[#fields + 1], fields[#fields + 2] = 'speech', note.speech end
end

local NOTED = { top = true, heard = true, heard_ms = true, speech = true }

-- Adds to `fields` the pairs of `given` from `first` on that are newer.
local function stream_fields(fields, top, heard, given, first)
  local note = {}
  for i = first, #given, 2 do
    if NOTED[given[i]] then
      note[given[i]] = given[i + 1]
    else
      fields[#fields + 1], fields[#fields + 2] = given[i], given[i + 1]
    end
  end
  stream_note(fields, top, heard, note)
end
