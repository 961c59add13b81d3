-- The base of verbs that use the keys of one instance: its inbox, its clock, its key names. The
-- call names `<prefix>:v1:{i:<instance>}:inbox`; every other key is derived from it, so that all
-- share one hash tag.
--- @include "includes/call"
local GROUP = 'scheduler'
local INBOX

-- server_ms: now in ms; 0 asks the server.
local function begin_inbox(inbox, server_ms)
  -- No cell: the next call on one derives its names again.
  DUE, CELL = nil, nil
  INBOX, BASE = inbox, string.sub(inbox, 1, -6)
  wall = server_time(server_ms)
  now = wall
end
