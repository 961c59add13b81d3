-- Nodes of the predecessor's protocol keep silent on slices whose audio they buffered; such slices
-- end without text when their turn ends. Ends those of `turn` in one lane, below `last`, that
-- `node` (or any node, when nil) holds in silence. Bounded by the lane's window.

local function slices_end(session, lane, turn, node, last, policy, out, freed)
  local key, prefix = BASE .. 'session:' .. session, 'at:' .. lane .. ':'
  for index = tonumber(redis.call('HGET', key, 'next:' .. lane) or 0), last do
    local value = redis.call('HGET', key, prefix .. index)
    local job = value and string.match(value, '^%d+ (.+)$')
    local record = job and job_read(job)
    if record and record.spec.is_slice and record.spec.turn == turn
      and record.acks == '0' and record.node ~= '' and (not node or record.node == node) then
      job_unhold(job, record, freed)
      job_finish(job, record, 'completed_no_text', 'buffered', '', policy, out)
    end
  end
end
