/** The part of the queue's Lua script that all operations share. */
import { MAX_LANE_PAUSE_MS } from '../delivery-queue.ts';

/**
 * The data of the queue in Redis, and the functions that all operations of its Lua script share. One call of the script runs a batch of operations on one shard, in the
 * order in which they were submitted. All keys of a shard have one hash tag, so that a Cluster keeps them on one node.
 *
 * Keys, after the prefix of the shard:
 * - `n`: counters of the shard: `seq`, `events`, `bytes`, `waiting`, `dead`, `skipped`.
 * - `e:<event>`: `m` = `<member prefix>|<bytes>|<created>`, `i` = JSON of type and channel, `w` = waiting deliveries, `x` = dead and skipped ones,
 *   `p` = the shards that have a part of the event, if there are several, `d<endpoint>` = a delivery, `a<endpoint>` = its newest attempts.
 *   All values are short, so Redis stores the hash compactly; the body is separate for the same reason.
 * - `b:<event>`: `<length of the metadata>:<metadata><body>`.
 * - `open`, `bad`, `fin`: events with a waiting delivery; without, but with dead or skipped ones; all others. Scores are creation times, members
 *   are a sequence number of ten hexadecimal digits and the event's ID, so that events of one millisecond keep their order.
 * - `failed`: dead and skipped deliveries, as `<member>~<endpoint>`, by creation time.
 * - `due:<endpoint>`: waiting deliveries that may be sent, by due time. `heads`: the earliest due time of each endpoint.
 * - `waiting`: the number of waiting deliveries of each endpoint.
 * - `o:<endpoint>~<key>`: waiting deliveries of one order key in the order of appending; only the first is in `due:<endpoint>`.
 * - `f:<endpoint>`: the delivery in flight of each order key: no other delivery of the key becomes due, not even an earlier one that is replayed.
 * - `l:<endpoint>`: the lane: `s` = its state, `own` = the token of the run that may take and settle, `nb` = not before, `wk` = woken since,
 *   `wt` = the time of the delayed job that wakes it.
 *
 * A delivery is `<state>|<attempt>|<tries>|<replay>|<due>|<settled>|<order key>`, where an order key starts with `=`, with the state w(aiting), d(elivered), x (dead) or s(kipped).
 * Times stay text, because Lua would write large numbers with fewer digits.
 */
export const BASE_LUA = `
local p = string.sub(KEYS[1], 1, -2)
local call = redis.call
local ops, counts, endpointCounts, touched, emptyReplies = {}, {}, {}, {}, {}
local LANE_TTL = 2592000000
local MAX_PAUSE = ${MAX_LANE_PAUSE_MS}

-- Redis at its maxmemory rejects the first write of a script that may need memory, and none after another write. Settlements must be
-- stored, and what is removed frees memory, so a write that needs none comes first. Only new events are then rejected.
local isFull = false
local function prepareWrites()
  local reply = redis.pcall('LPUSHX', p .. 'none', '')
  isFull = type(reply) == 'table' and reply.err ~= nil and string.find(reply.err, 'OOM', 1, true) ~= nil
  if isFull then call('DEL', p .. 'none') end
end

local function rejectIfFull()
  if isFull then error({ err = 'OOM command not allowed when used memory > maxmemory' }) end
end

local function count(name, by) counts[name] = (counts[name] or 0) + by end

local function countWaiting(endpoint, by)
  count('waiting', by)
  endpointCounts[endpoint] = (endpointCounts[endpoint] or 0) + by
  touched[endpoint] = true
end

local function flush()
  for name, by in pairs(counts) do if by ~= 0 then call('HINCRBY', p .. 'n', name, by) end end
  for endpoint, by in pairs(endpointCounts) do
    if by ~= 0 and call('HINCRBY', p .. 'waiting', endpoint, by) <= 0 then call('HDEL', p .. 'waiting', endpoint) end
  end
  local isEmpty = {}
  for endpoint in pairs(touched) do
    local head = call('ZRANGE', p .. 'due:' .. endpoint, 0, 0, 'WITHSCORES')
    isEmpty[endpoint] = not head[2]
    if head[2] then call('ZADD', p .. 'heads', head[2], endpoint) else call('ZREM', p .. 'heads', endpoint) end
  end
  for reply, endpoint in pairs(emptyReplies) do reply[2] = isEmpty[endpoint] and 1 or 0 end
end

local function parse(text)
  local state, attempt, tries, replay, due, settled, key = string.match(text, '^(%a)|(%d+)|(%d+)|(%d)|([^|]*)|([^|]*)|(.*)$')
  return { state = state, attempt = tonumber(attempt), tries = tonumber(tries), replay = replay, due = due, settled = settled, key = key }
end

local function format(d) return table.concat({ d.state, d.attempt, d.tries, d.replay, d.due, d.settled, d.key }, '|') end

-- The order key, which starts with '=', or ''.
local function keyOf(text)
  local at = string.find(text, '|=', 1, true)
  return at and string.sub(text, at + 1) or ''
end

local function write(id, endpoint, d) call('HSET', p .. 'e:' .. id, 'd' .. endpoint, format(d)) end

local function idOf(member) return string.sub(member, 11) end

-- The member of an event in sorted sets, and the creation time.
local function readMeta(id, meta)
  local prefix, size, created = string.match(meta, '^(%x+)|(%d+)|(.*)$')
  return prefix .. id, created, tonumber(size)
end

local function locate(id)
  local meta = call('HGET', p .. 'e:' .. id, 'm')
  if meta then return readMeta(id, meta) end
end

-- The set that fits the counts of an event. Parts of an event in other shards follow the first one when they are removed.
local function setOf(w, x, parts)
  if w > 0 or (parts and string.sub(parts, 1, 1) == '-') then return 'open' end
  return x > 0 and 'bad' or 'fin'
end

local function move(member, created, from, to)
  if from == to then return end
  call('ZREM', p .. from, member)
  call('ZADD', p .. to, created, member)
end

-- Lets the first delivery of an order key become due, unless one of the key is in flight.
local function promote(endpoint, key)
  if call('HEXISTS', p .. 'f:' .. endpoint, key) == 1 then return end
  local first, second = unpack(call('ZRANGE', p .. 'o:' .. endpoint .. '~' .. key, 0, 1))
  if second then call('ZREM', p .. 'due:' .. endpoint, second) end
  if not first then return end
  local text = call('HGET', p .. 'e:' .. idOf(first), 'd' .. endpoint)
  if text then call('ZADD', p .. 'due:' .. endpoint, parse(text).due, first) end
  touched[endpoint] = true
end

-- Makes a waiting delivery, which is stored, due, or puts it behind the others of its key.
local function enqueue(endpoint, member, d)
  touched[endpoint] = true
  if d.key == '' then return call('ZADD', p .. 'due:' .. endpoint, d.due, member) end
  call('ZADD', p .. 'o:' .. endpoint .. '~' .. d.key, tonumber(string.sub(member, 1, 10), 16), member)
  promote(endpoint, d.key)
end

local function dequeue(endpoint, member, key)
  touched[endpoint] = true
  call('ZREM', p .. 'due:' .. endpoint, member)
  if key == '' then return end
  call('ZREM', p .. 'o:' .. endpoint .. '~' .. key, member)
  if call('HGET', p .. 'f:' .. endpoint, key) == member then call('HDEL', p .. 'f:' .. endpoint, key) end
  promote(endpoint, key)
end

-- The end of a lane's pause; nil if it has none. One that no run can have asked for is of a clock that was ahead.
local function pauseOf(notBefore, now)
  local at = tonumber(notBefore or '')
  if at and at <= tonumber(now) + MAX_PAUSE then return at end
end

local function headOf(endpoint) return call('ZRANGE', p .. 'due:' .. endpoint, 0, 0, 'WITHSCORES')[2] end

-- Whether an endpoint needs a wake-up when it gets work that is due: not if it had some already. While it is paused, its wake-up is at the end
-- of the pause only if it had work for then; otherwise it is later, or there is none.
local function needsWake(endpoint, now)
  local head = headOf(endpoint)
  if head and tonumber(head) <= tonumber(now) then return false end
  local notBefore = pauseOf(call('HGET', p .. 'l:' .. endpoint, 'nb'), now)
  if not notBefore or notBefore <= tonumber(now) then return true end
  return not head or tonumber(head) > notBefore
end
`;

/** The end of the script. */
export const RUN_LUA = `
local READS = ' attempts backlogs event known laneStates listEndpoints orphans part removable revision scan shardsOf stats '

-- Runs the batch: for each operation its name, the number of its arguments, and these.
local replies, i, isPrepared = {}, 1, false
while i <= #ARGV do
  local name, n = ARGV[i], tonumber(ARGV[i + 1])
  local a = {}
  for j = 1, n do a[j] = ARGV[i + 1 + j] end
  i = i + 2 + n
  if not isPrepared and not string.find(READS, ' ' .. name .. ' ', 1, true) then
    prepareWrites()
    isPrepared = true
  end
  local ok, reply = pcall(ops[name], a)
  if not ok then reply = type(reply) == 'table' and reply.err or tostring(reply) end
  replies[#replies + 1] = { ok and 1 or 0, reply }
end
flush()
return replies
`;
