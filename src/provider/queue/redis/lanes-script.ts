/** The operations of the queue's Lua script that append, take and settle; see base-script.ts. */
export const LANES_LUA = `
-- An event counts once, although several shards have a part of it.
local function isFirst(parts) return string.sub(parts or '', 1, 1) ~= '-' end

-- Stores one event; the arguments of its targets start at position i + 7.
local function store(a, i, seq, now, wakes)
  local id, info, created, size, blob, parts, targets = a[i], a[i + 1], a[i + 2], a[i + 3], a[i + 4], a[i + 5], tonumber(a[i + 6])
  local member = string.format('%010x', seq) .. id
  local fields, waiting, x = { 'm', string.sub(member, 1, 10) .. '|' .. size .. '|' .. created, 'i', info }, {}, 0
  for t = i + 7, i + 4 + 3 * targets, 3 do
    local endpoint, d = a[t], { state = 'w', attempt = 0, tries = 0, replay = '0', due = now, settled = '', key = a[t + 1] }
    if a[t + 2] == '1' then
      d.state, d.due, d.settled, x = 's', '', now, x + 1
      call('ZADD', p .. 'failed', created, member .. '~' .. endpoint)
    else
      waiting[#waiting + 1] = { endpoint, d }
    end
    fields[#fields + 1], fields[#fields + 2] = 'd' .. endpoint, format(d)
  end
  fields[#fields + 1], fields[#fields + 2] = 'w', #waiting
  if x > 0 then fields[#fields + 1], fields[#fields + 2] = 'x', x end
  if parts ~= '' then fields[#fields + 1], fields[#fields + 2] = 'p', parts end
  for first = 1, #fields, 1000 do call('HSET', p .. 'e:' .. id, unpack(fields, first, math.min(first + 999, #fields))) end
  call('SET', p .. 'b:' .. id, blob)
  call('ZADD', p .. setOf(#waiting, x, parts), created, member)
  if isFirst(parts) then count('events', 1) end
  count('bytes', tonumber(size))
  count('skipped', x)
  for _, each in ipairs(waiting) do
    local endpoint = each[1]
    if wakes[endpoint] == nil then wakes[endpoint] = needsWake(endpoint, now) end
    countWaiting(endpoint, 1)
    enqueue(endpoint, member, each[2])
  end
end

-- now, maxEvents, maxBytes, '1' to write in any case, number of events, events -> { 0 if full, results, endpoints to wake }
function ops.append(a)
  local now, maxEvents, maxBytes, events = a[1], tonumber(a[2]), tonumber(a[3]), tonumber(a[5])
  local at, seen, fresh, bytes, i = {}, {}, 0, 0, 6
  for e = 1, events do
    at[e] = i
    local id = a[i]
    if seen[id] or call('EXISTS', p .. 'e:' .. id) == 1 or (a[i + 5] == '' and call('EXISTS', p .. 'id:' .. id) == 1) then
      at[e] = -1
    else
      seen[id], fresh, bytes = true, fresh + (isFirst(a[i + 5]) and 1 or 0), bytes + tonumber(a[i + 3])
    end
    i = i + 7 + 3 * tonumber(a[i + 6])
  end
  if bytes > 0 then rejectIfFull() end
  if a[4] == '1' then call('HINCRBY', p .. 'n', 'tick', 1) end
  local n = call('HMGET', p .. 'n', 'events', 'bytes')
  local usedEvents = tonumber(n[1] or 0) + (counts.events or 0)
  local usedBytes = tonumber(n[2] or 0) + (counts.bytes or 0)
  if bytes > 0 and (usedEvents + fresh > maxEvents or usedBytes + bytes > maxBytes) then return { 0, {}, {} } end
  local results, wakes, wake, stored = {}, {}, {}, 0
  for e = 1, events do if at[e] > 0 then stored = stored + 1 end end
  local seq = stored > 0 and call('HINCRBY', p .. 'n', 'seq', stored) - stored or 0
  for e = 1, events do
    results[e] = at[e] > 0 and 1 or 0
    seq = seq + results[e]
    if at[e] > 0 then store(a, at[e], seq, now, wakes) end
  end
  for endpoint, isNeeded in pairs(wakes) do if isNeeded then wake[#wake + 1] = endpoint end end
  return { 1, results, wake }
end

-- Due deliveries of the endpoint, except for busy ones, as member, properties, meta, text and body each; and whether no others are due. Most bytes: optional.
local function takeDue(endpoint, now, limit, most, busy, busyCount)
  local taken, bytes = {}, 0
  local members = call('ZRANGEBYSCORE', p .. 'due:' .. endpoint, '-inf', now, 'LIMIT', 0, limit + busyCount)
  for _, member in ipairs(members) do
    local id = idOf(member)
    if #taken < 5 * limit and not busy[id] then
      local i, m, text = unpack(call('HMGET', p .. 'e:' .. id, 'i', 'm', 'd' .. endpoint))
      if text then
        if most then
          local _, _, size = readMeta(id, m)
          bytes = bytes + size
          if bytes > most then return taken, 0 end
        end
        local key = keyOf(text)
        if key ~= '' then call('HSET', p .. 'f:' .. endpoint, key, member) end
        for _, each in ipairs({ member, i, m, text, call('GET', p .. 'b:' .. id) or '0:' }) do taken[#taken + 1] = each end
      else
        call('ZREM', p .. 'due:' .. endpoint, member)
        touched[endpoint] = true
      end
    end
  end
  return taken, #members < limit + busyCount and 1 or 0
end

-- endpoint, token, now, most deliveries, most bytes
-- -> { 1, state, deliveries, 1 if no others are due, time of Redis } if there is work, and the token then owns the lane;
-- otherwise { 0, time of the next work }
function ops.begin(a)
  local endpoint, token, now = a[1], a[2], tonumber(a[3])
  local lane = p .. 'l:' .. endpoint
  local s, nb, wk = unpack(call('HMGET', lane, 's', 'nb', 'wk'))
  if wk then
    call('HDEL', lane, 'wk', 'nb')
    nb = nil
  end
  local head = headOf(endpoint)
  if not head then return { 0, '' } end
  if (pauseOf(nb, now) or 0) < tonumber(head) then nb = nil end
  local next = nb or head
  local hasWork = tonumber(next) <= now
  call('HSET', lane, hasWork and 'own' or 'wt', hasWork and token or next)
  call('PEXPIRE', lane, LANE_TTL)
  if not hasWork then return { 0, next } end
  local inFlight = call('HGETALL', p .. 'f:' .. endpoint)
  if #inFlight > 0 then call('DEL', p .. 'f:' .. endpoint) end
  for i = 1, #inFlight, 2 do
    call('ZREM', p .. 'due:' .. endpoint, inFlight[i + 1])
    promote(endpoint, inFlight[i])
  end
  local taken, isComplete = takeDue(endpoint, a[3], tonumber(a[4]), tonumber(a[5]), {}, 0)
  local time = call('TIME')
  return { 1, s or '', taken, isComplete, time[1] * 1000 + math.floor(time[2] / 1000) }
end

-- endpoint, token, now, limit, events in flight -> { 1, deliveries }, or { 0 } if the lane was lost
function ops.take(a)
  if call('HGET', p .. 'l:' .. a[1], 'own') ~= a[2] then return { 0 } end
  local busy = {}
  for i = 5, #a do busy[a[i]] = true end
  local taken = takeDue(a[1], a[3], tonumber(a[4]), nil, busy, #a - 4)
  return { 1, taken }
end

local MAX_ATTEMPTS = 20

local function addAttempt(attempts, record)
  if not attempts then return record end
  local lines = { record }
  for line in string.gmatch(attempts, '[^\\n]+') do
    if #lines < MAX_ATTEMPTS then lines[#lines + 1] = line end
  end
  return table.concat(lines, '\\n')
end

-- A delivery that waits for its retry lets earlier ones of its key, which were replayed meanwhile, go first.
local function settleLater(endpoint, member, key, due)
  if key == '' then
    call('ZADD', p .. 'due:' .. endpoint, due, member)
    touched[endpoint] = true
    return
  end
  call('ZREM', p .. 'due:' .. endpoint, member)
  call('HDEL', p .. 'f:' .. endpoint, key)
  promote(endpoint, key)
end

-- Whether a delivery is as it was taken. Its due time may have changed: the sweep hastens deliveries, also those in flight.
local function isUnchanged(stored, expected)
  if stored == expected then return true end
  local before, after = string.match(stored or '', '^(%a|%d+|%d+|%d|)[^|]*(.*)$')
  local expectedBefore, expectedAfter = string.match(expected, '^(%a|%d+|%d+|%d|)[^|]*(.*)$')
  return before == expectedBefore and after == expectedAfter
end

-- Writes the next text of a delivery unless it has changed since it was taken: then it is settled already.
local function settleOne(endpoint, member, created, expected, text, kind, key, due, record)
  local event = p .. 'e:' .. idOf(member)
  local stored, attempts, w, x, parts = unpack(call('HMGET', event, 'd' .. endpoint, 'a' .. endpoint, 'w', 'x', 'p'))
  if not isUnchanged(stored, expected) then return end
  local isFinal = kind ~= 'r' and kind ~= 'p'
  local fields = {}
  if isFinal then
    w, x = tonumber(w) - 1, tonumber(x or '0')
    if kind ~= 'd' then x = x + 1 end
    fields = kind == 'd' and { 'w', w } or { 'w', w, 'x', x }
  end
  if record ~= '' then fields[#fields + 1], fields[#fields + 2] = 'a' .. endpoint, addAttempt(attempts, record) end
  call('HSET', event, 'd' .. endpoint, text, unpack(fields))
  if not isFinal then return settleLater(endpoint, member, key, due) end
  dequeue(endpoint, member, key)
  countWaiting(endpoint, -1)
  if kind ~= 'd' then
    call('ZADD', p .. 'failed', created, member .. '~' .. endpoint)
    count(kind == 'x' and 'dead' or 'skipped', 1)
  end
  move(member, created, 'open', setOf(w, x, parts))
end

-- endpoint, token, state, settlements as member, creation time, text as taken, next text, kind, order key, due time, record
-- -> { 0 } if the lane was lost; otherwise { 1, 1 if nothing waits and the lane has to run no more }
function ops.settle(a)
  local lane, endpoint = p .. 'l:' .. a[1], a[1]
  local own, state, nb, wk = unpack(call('HMGET', lane, 'own', 's', 'nb', 'wk'))
  if own ~= a[2] then return { 0 } end
  if state ~= a[3] then call('HSET', lane, 's', a[3]) end
  for i = 4, #a, 8 do settleOne(endpoint, a[i], a[i + 1], a[i + 2], a[i + 3], a[i + 4], a[i + 5], a[i + 6], a[i + 7]) end
  local reply = { 1, 0 }
  touched[endpoint] = true
  if not (nb or wk) then emptyReplies[reply] = endpoint end
  return reply
end

-- endpoint, token, now, not before -> { 0 } if the lane was lost; otherwise { 1, time of the next work, '1' if a wake-up for it must be scheduled }
function ops.finish(a)
  local endpoint, nb = a[1], a[4]
  local lane = p .. 'l:' .. endpoint
  local own, wk, wt = unpack(call('HMGET', lane, 'own', 'wk', 'wt'))
  if own ~= a[2] then return { 0 } end
  if wk then
    call('HDEL', lane, 'wk')
    nb = ''
  end
  if nb ~= '' then call('HSET', lane, 'nb', nb) else call('HDEL', lane, 'nb') end
  local next = headOf(endpoint)
  if not next then return { 1, '', '0' } end
  if nb ~= '' and tonumber(nb) > tonumber(next) then next = nb end
  if next == wt or tonumber(next) <= tonumber(a[3]) then return { 1, next, '0' } end
  call('HSET', lane, 'wt', next)
  return { 1, next, '1' }
end

-- endpoint: its next run does not wait for the time that the last one returned
function ops.wake(a)
  call('HSET', p .. 'l:' .. a[1], 'wk', 1)
  call('HDEL', p .. 'l:' .. a[1], 'nb')
  call('PEXPIRE', p .. 'l:' .. a[1], LANE_TTL)
  return 1
end
`;
