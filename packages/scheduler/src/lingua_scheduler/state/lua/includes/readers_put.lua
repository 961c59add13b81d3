-- The recognised text for listeners of the speaker's own language, in the lane `~`. It comes with
-- the first language of the utterance that has it; if none has it, only the end is reported. Until
-- then the entry is `<put_ms>~<languages that have not ended>`; the first language writes it.
--- @include "includes/cell"
--- @include "includes/lane"
local function readers_put(key, spec, gap_ms)
  local found = redis.call('HMGET', key, 'next:~', 'at:~:' .. spec.index, 'lanes')
  local next_index = tonumber(found[1])
  if found[2] or spec.index < (next_index or 0) then return end
  local left = string.format('%.0f', now) .. '~' .. (spec.lanes or 1)
  local fields = { 'at:~:' .. spec.index, left }
  if not next_index then fields[3], fields[4] = 'lanes', (found[3] or '') .. '~ ' end
  local place = { session = spec.session, lane = '~', index = spec.index,
    unwanted_from = spec.readers_from }
  lane_put(key, place, next_index, fields, gap_ms)
end
