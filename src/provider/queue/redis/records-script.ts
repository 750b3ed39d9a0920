/** The operations of the queue's Lua script that list, replay, count and repair; see base-script.ts. */
export const RECORDS_LUA = `
-- event -> { properties, member and creation time, body, parts, endpoints of its deliveries ... }, or nothing
function ops.event(a)
  local i, m, parts = unpack(call('HMGET', p .. 'e:' .. a[1], 'i', 'm', 'p'))
  if not m then return {} end
  return { i, m, call('GET', p .. 'b:' .. a[1]) or '0:', parts or '' }
end

-- event, endpoint -> { 1, attempts }, or nothing
function ops.attempts(a)
  local d, attempts = unpack(call('HMGET', p .. 'e:' .. a[1], 'd' .. a[2], 'a' .. a[2]))
  if not d then return {} end
  return { attempts or '' }
end

-- Adds at most as many members of a set as asked, in descending order, from a position on.
local function collect(into, name, from, to, score, member, most, isStrict)
  local offset = 0
  repeat
    local found = call('ZREVRANGEBYSCORE', p .. name, to, from, 'WITHSCORES', 'LIMIT', offset, most)
    local added = #into
    for i = 1, #found, 2 do
      if tonumber(found[i + 1]) ~= score or found[i] < member or (found[i] == member and not isStrict) then into[#into + 1] = { found[i], tonumber(found[i + 1]), found[i + 1] } end
    end
    offset = offset + most
  until #found < 2 * most or #into > added
end

local function isLater(one, other)
  if one[2] ~= other[2] then return one[2] > other[2] end
  return one[1] > other[1]
end

local function endpointsOf(member, only)
  local listed = string.match(member, '~(.*)$')
  if listed then return { listed } end
  if only ~= '' then return { only } end
  local endpoints = {}
  for _, field in ipairs(call('HKEYS', p .. 'e:' .. idOf(member))) do
    if string.sub(field, 1, 1) == 'd' then endpoints[#endpoints + 1] = string.sub(field, 2) end
  end
  table.sort(endpoints, function(one, other) return one > other end)
  return endpoints
end

-- Adds the matching deliveries of one member, in descending order, whose endpoint is before the given one. Returns the last endpoint that it read
-- if more follow, or '' if it read none: there are as many rows as the limit, or as many deliveries were read as one call may read.
local function addMatching(rows, limit, item, before, f)
  local id = string.match(idOf(item[1]), '^[^~]*')
  local info, last = call('HGET', p .. 'e:' .. id, 'i'), ''
  if not info or f.type ~= '' and cjson.decode(info)[1] ~= f.type then return end
  for _, endpoint in ipairs(endpointsOf(item[1], f.endpoint)) do
    if endpoint < before and (f.endpoint == '' or f.endpoint == endpoint) then
      if f.left == 0 then return last end
      local text, attempts = unpack(call('HMGET', p .. 'e:' .. id, 'd' .. endpoint, 'a' .. endpoint))
      if text and string.find(f.states, string.sub(text, 1, 1), 1, true) then
        if #rows == limit then return last end
        local newest = string.match(attempts or '', '^[^\\n]*')
        rows[#rows + 1] = { item[3], string.sub(item[1], 1, 10) .. id, endpoint, text, newest, info }
      end
      f.left, last = f.left - 1, endpoint
    end
  end
end

-- The position after all deliveries of an item.
local function endOf(item) return item[3], string.match(item[1], '^[^~]*'), string.match(item[1], '~(.*)$') or '' end

-- from, to, score and member and endpoint of the position, limit, states, endpoint, type, event, most events and deliveries to read
-- -> { rows, score, member, endpoint }: where to continue; without a score nothing is left
function ops.scan(a)
  local from, to, score, member, after, limit, most = a[1], a[2], tonumber(a[3]), a[4], a[5], tonumber(a[6]), tonumber(a[11])
  local f = { states = a[7], endpoint = a[8], type = a[9], left = most }
  local items, rows = {}, {}
  if a[10] ~= '' then
    local found, created = locate(a[10])
    if found and (not score or tonumber(created) == score and found == member) then items[1] = { found, tonumber(created), created } end
  elseif string.find(f.states, '[wd]') then
    for _, name in ipairs({ 'open', 'bad', 'fin' }) do collect(items, name, from, to, score, member, most) end
  else
    collect(items, 'failed', from, to, score, member .. '~' .. after, most, true)
  end
  table.sort(items, isLater)
  local last
  for i = 1, math.min(#items, most) do
    local item = items[i]
    local isSame = item[2] == score and string.match(item[1], '^[^~]*') == member
    local read = addMatching(rows, limit, item, isSame and after or '\\255', f)
    if read == '' then return { rows, endOf(last) } end
    if read then return { rows, item[3], string.match(item[1], '^[^~]*'), read } end
    last = item
  end
  if a[10] ~= '' or not last or #items < most then return { rows } end
  return { rows, endOf(last) }
end

-- now, '1' to create, event, endpoint, ... -> { changed deliveries, endpoints to wake }
function ops.replay(a)
  local now, changed, wake = a[1], 0, {}
  for i = 3, #a, 2 do
    local id, endpoint = a[i], a[i + 1]
    local member, created = locate(id)
    local text = member and call('HGET', p .. 'e:' .. id, 'd' .. endpoint)
    local d = text and parse(text)
    if member and not d and a[2] == '1' then d = { state = 'new', attempt = 0, key = '' } end
    if d and d.state ~= 'w' then
      local w, x, parts = unpack(call('HMGET', p .. 'e:' .. id, 'w', 'x', 'p'))
      move(member, created, setOf(tonumber(w), tonumber(x or '0'), parts), 'open')
      if d.state == 'x' or d.state == 's' then
        call('ZREM', p .. 'failed', member .. '~' .. endpoint)
        call('HINCRBY', p .. 'e:' .. id, 'x', -1)
        count(d.state == 'x' and 'dead' or 'skipped', -1)
      end
      if needsWake(endpoint, now) then wake[#wake + 1] = endpoint end
      d.state, d.tries, d.replay, d.due, d.settled = 'w', 0, '1', now, ''
      write(id, endpoint, d)
      call('HINCRBY', p .. 'e:' .. id, 'w', 1)
      countWaiting(endpoint, 1)
      enqueue(endpoint, member, d)
      changed = changed + 1
    end
  end
  return { changed, wake }
end

-- The shard of an event's ID, with several shards. Claims the ID with a plan of the parts -> { 'new' }, { 'pending', plan } or { 'stored' }
function ops.claim(a)
  local key = p .. 'id:' .. a[1]
  if call('EXISTS', key) == 0 and call('HEXISTS', p .. 'e:' .. a[1], 'm') == 1 and call('HEXISTS', p .. 'e:' .. a[1], 'p') == 0 then return { 'stored', '' } end
  local value = call('GET', key)
  if not value then
    rejectIfFull()
    call('SET', key, 'p' .. a[2], 'PX', 86400000)
    return { 'new' }
  end
  return { string.sub(value, 1, 1) == 'p' and 'pending' or 'stored', string.sub(value, 2) }
end

-- events -> for each 1 if its ID is stored
function ops.known(a)
  local known = {}
  for i, id in ipairs(a) do
    local value = call('GET', p .. 'id:' .. id)
    known[i] = (value and string.sub(value, 1, 1) == 's' or not value and call('EXISTS', p .. 'e:' .. id) == 1) and 1 or 0
  end
  return known
end

-- event, shards: all parts are stored
function ops.confirm(a) return call('SET', p .. 'id:' .. a[1], 's' .. a[2]) and 1 end

function ops.unclaim(a) return call('DEL', p .. 'id:' .. a[1]) end

function ops.shardsOf(a) return { call('GET', p .. 'id:' .. a[1]) or '' } end

-- -> { events, bytes, waiting, dead, skipped, earliest due time }
function ops.stats()
  local n = call('HMGET', p .. 'n', 'events', 'bytes', 'waiting', 'dead', 'skipped')
  for i = 1, 5 do n[i] = tonumber(n[i] or '0') end
  n[6] = call('ZRANGE', p .. 'heads', 0, 0, 'WITHSCORES')[2] or ''
  return n
end

-- endpoints -> the number of waiting deliveries and the earliest due time of each
function ops.backlogs(a)
  local out = {}
  for _, endpoint in ipairs(a) do
    out[#out + 1] = tonumber(call('HGET', p .. 'waiting', endpoint) or '0')
    out[#out + 1] = call('ZSCORE', p .. 'heads', endpoint) or ''
  end
  return out
end

-- endpoints -> the state of the lane of each, or ''
function ops.laneStates(a)
  local out = {}
  for i, endpoint in ipairs(a) do out[i] = call('HGET', p .. 'l:' .. endpoint, 's') or '' end
  return out
end

-- Whether BullMQ will run a job with the deduplication ID by the time.
local function hasJob(name, running, before)
  local job = call('GET', p .. 'lane:de:' .. name)
  if not job then return false end
  if running[job] then return true end
  local score = call('ZSCORE', p .. 'lane:delayed', job)
  return score and tonumber(score) / 4096 <= before
end

-- now, interval or 0, grace, offset, most -> { endpoints read, endpoints with due work and without a lane }
function ops.sweep(a)
  local now, grace = tonumber(a[1]), tonumber(a[3])
  if a[4] == '0' then
    local last = tonumber(call('GET', p .. 'swept') or '0')
    if last <= now and now - last < tonumber(a[2]) then return { 0 } end
    call('SET', p .. 'swept', a[1], 'PX', 3600000)
  end
  local running = {}
  for _, list in ipairs({ 'wait', 'active' }) do
    for _, job in ipairs(call('LRANGE', p .. 'lane:' .. list, 0, -1)) do running[job] = true end
  end
  local due = call('ZRANGEBYSCORE', p .. 'heads', '-inf', now - grace, 'LIMIT', a[4], a[5])
  local out = { #due }
  for _, endpoint in ipairs(due) do
    local nb = pauseOf(call('HGET', p .. 'l:' .. endpoint, 'nb'), now) or 0
    if nb <= now - grace and not hasJob(endpoint, running, now) and not hasJob('~' .. endpoint, running, now) then
      -- A job that is in no list never runs, and its deduplication key would keep others from running.
      for _, name in ipairs({ endpoint, '~' .. endpoint }) do
        local job = call('GET', p .. 'lane:de:' .. name)
        if job and not call('ZSCORE', p .. 'lane:delayed', job) then call('DEL', p .. 'lane:' .. job, p .. 'lane:de:' .. name) end
      end
      out[#out + 1] = endpoint
    end
  end
  return out
end

-- now, tolerance, offset, most -> { events read, endpoints with deliveries that a clock that was ahead appended; they are due now }
function ops.hasten(a)
  local now, out, known = tonumber(a[1]), {}, {}
  local found = call('ZREVRANGEBYSCORE', p .. 'open', '+inf', '(' .. now + a[2], 'LIMIT', a[3], a[4])
  out[1] = #found
  for _, member in ipairs(found) do
    local id = idOf(member)
    for _, endpoint in ipairs(endpointsOf(member, '')) do
      local d = parse(call('HGET', p .. 'e:' .. id, 'd' .. endpoint))
      -- A retry waits for a delay of the schedule, and which may be long.
      if d.state == 'w' and d.tries == 0 and tonumber(d.due) > now then
        d.due = a[1]
        write(id, endpoint, d)
        call('ZADD', p .. 'due:' .. endpoint, 'XX', a[1], member)
        touched[endpoint] = true
        if not known[endpoint] then out[#out + 1], known[endpoint] = endpoint, true end
      end
    end
  end
  return out
end

-- -> IDs and '<version>\\n<JSON>'
function ops.listEndpoints() return call('HGETALL', p .. 'eps') end

-- id, version, JSON -> the revision of the store, or 0 if another version is stored
function ops.putEndpoint(a)
  local stored = tonumber(string.match(call('HGET', p .. 'eps', a[1]) or '0', '^%d+'))
  if stored ~= tonumber(a[2]) - 1 then return 0 end
  call('HSET', p .. 'eps', a[1], a[2] .. '\\n' .. a[3])
  return call('HINCRBY', p .. 'n', 'revision', 1)
end

-- id, version or '' -> the revision of the store, or 0 if nothing was removed
function ops.removeEndpoint(a)
  if a[2] ~= '' and string.match(call('HGET', p .. 'eps', a[1]) or '', '^%d+') ~= a[2] then return 0 end
  if call('HDEL', p .. 'eps', a[1]) == 0 then return 0 end
  return call('HINCRBY', p .. 'n', 'revision', 1)
end

function ops.revision() return tonumber(call('HGET', p .. 'n', 'revision') or '0') end
`;
