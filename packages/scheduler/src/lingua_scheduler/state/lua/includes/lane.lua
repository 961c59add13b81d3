-- A lane: the outcomes of one speaker into one language, released strictly by utterance index. It
-- is in the session's hash, so that order, position and outbox change with one read and one write:
-- `next:<lane>` the index to release; `skip:<lane>` unwanted ranges `a:b,`; `at:<lane>:<index>`
-- either `<put_ms> <job>` until the job ends, or `=<put_ms> <entry>` while its outcome waits for
-- earlier ones. An entry is `kind index lane job attempt reason`, a newline, and the payload. Twin:
-- session/ordering.py.
--- @include "includes/cell"
--- @include "includes/lane_skip"
--- @include "includes/lane_entries"

-- Writes `value` at spec.index, declares the unwanted range before it, and arms the lane's gap
-- timer if the index before it is unknown. `fields` are written with it, the first one is the entry
-- itself. `before_it`: the entry of the index before it, false if there is none; nil: not read.
local function lane_put(key, spec, next_index, fields, gap_ms, before_it)
  local lane, index, unwanted = spec.lane, spec.index, spec.unwanted_from or -1
  local known = next_index or 0
  if unwanted >= 0 and unwanted < index then
    if unwanted <= known then
      known = index
    else
      local skip = redis.call('HGET', key, 'skip:' .. lane) or ''
      skip = skip .. unwanted .. ':' .. index .. ','
      fields[#fields + 1], fields[#fields + 2] = 'skip:' .. lane, skip
      index, before_it = unwanted, nil
    end
  end
  if index > known and before_it == nil then
    before_it = redis.call('HEXISTS', key, 'at:' .. lane .. ':' .. (index - 1)) == 1
  end
  if index > known and not before_it then
    redis.call('ZADD', DUE, 'NX', now + gap_ms, 'g|' .. spec.session .. '|' .. lane)
  end
  if known ~= next_index then
    fields[#fields + 1], fields[#fields + 2] = 'next:' .. lane, known
  end
  redis.call('HSET', key, unpack(fields))
end

-- Returns nil if spec.index may enter, else the refusal. Reads only.
local function lane_refuses(key, spec, next_index, skip, present, window)
  local index, reach = spec.index, spec.index
  if index < next_index then return Reply.INDEX_RELEASED end
  if spec.unwanted_from and spec.unwanted_from >= 0 and spec.unwanted_from < index then
    reach = spec.unwanted_from
  end
  if reach >= next_index + window then return Reply.IN_FLIGHT_LIMIT end
  if present then return Reply.INDEX_TAKEN end
  if skip and lane_skip(skip, index) then return Reply.INDEX_RELEASED end
  if reach == index then return nil end
  for _, entry in ipairs(lane_entries(key, spec.lane)) do
    if entry[1] >= reach and entry[1] < index then return Reply.INDEX_TAKEN end
  end
  return nil
end
