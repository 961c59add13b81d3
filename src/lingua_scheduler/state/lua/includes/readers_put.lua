-- What listeners of the speaker's own language read: the recognised text, in the lane `~`. It comes
-- with whichever language of the utterance has it first; if none has any, its end is told. While
-- the utterance lives its place is `<put_ms>~<languages that have not ended>`; it is given with the
-- first of them.
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
