-- Nodes of the old protocol send no result for slices whose audio they buffered; such slices
-- end without text when their turn ends. Ends those of `turn` in one lane, up to `last`, that
-- `node` (or any node, when nil) holds in silence. Bounded by the jobs in progress.
--- @include "includes/lane_entries"
--- @include "includes/cell"
--- @include "includes/finish"

local function slices_end(session, lane, turn, node, last, policy, out, freed)
  for _, entry in ipairs(lane_entries(SESSION .. session, lane)) do
    local job = entry[1] <= last and string.match(entry[3], '^%d+ (.+)$')
    local record = job and job_read(job)
    if record and record.spec.is_slice and record.spec.turn == turn and record.node ~= ''
      and (not node or record.node == node)
      and redis.call('HGET', JOB .. job, 'acks') == '0' then
      job_unhold(job, record, freed)
      job_finish(job, record, 'completed_no_text', 'buffered', '', policy, out)
    end
  end
end
