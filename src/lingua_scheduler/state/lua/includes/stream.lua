-- What a later owner of a session goes on from: `top`, the next free index, and up to where the
-- stream is admitted: `heard`, the last chunk, `heard_ms`, its end, `speech`, how much of it became
-- jobs. What comes late (another language, a second try) does not put back what was noted.
-- Adds to `fields` what `note` has that is news to a session whose fields are `top` and `heard`.
local function stream_note(fields, top, heard, note)
  if note.top and tonumber(note.top) >= tonumber(top or 0) then
    fields[#fields + 1], fields[#fields + 2] = 'top', note.top
  end
  if not note.heard or tonumber(note.heard) <= tonumber(heard or -1) then return end
  fields[#fields + 1], fields[#fields + 2] = 'heard', note.heard
  fields[#fields + 1], fields[#fields + 2] = 'heard_ms', note.heard_ms or 0
  if note.speech then fields[#fields + 1], fields[#fields + 2] = 'speech', note.speech end
end

-- Adds to `fields` the pairs of ARGV from `first` on, as far as they are news.
local function stream_fields(fields, top, heard, first)
  local names, note = { top = true, heard = true, heard_ms = true, speech = true }, {}
  for i = first, #ARGV, 2 do
    if names[ARGV[i]] then
      note[ARGV[i]] = ARGV[i + 1]
    else
      fields[#fields + 1], fields[#fields + 2] = ARGV[i], ARGV[i + 1]
    end
  end
  stream_note(fields, top, heard, note)
end
