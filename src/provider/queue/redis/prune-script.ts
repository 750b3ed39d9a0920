/** The operations of the queue's Lua script that remove events; see base-script.ts. */
export const PRUNE_LUA = `
-- set, before, score and member of the position, limit -> members, scores and parts of events that can be removed
function ops.removable(a)
  local found = call('ZRANGEBYSCORE', p .. a[1], a[3] == '' and '-inf' or a[3], '(' .. a[2], 'WITHSCORES', 'LIMIT', 0, tonumber(a[5]) + tonumber(a[6]))
  local out = {}
  for i = 1, #found, 2 do
    if tonumber(found[i + 1]) ~= tonumber(a[3]) or found[i] > a[4] then
      if #out < 3 * tonumber(a[5]) then
        for _, each in ipairs({ found[i], found[i + 1], call('HGET', p .. 'e:' .. idOf(found[i]), 'p') or '' }) do out[#out + 1] = each end
      end
    end
  end
  return out
end

-- event -> { waiting, dead and skipped } deliveries of the part, or nothing
function ops.part(a)
  local w, x = unpack(call('HMGET', p .. 'e:' .. a[1], 'w', 'x'))
  if not w then return {} end
  return { tonumber(w), tonumber(x or '0') }
end

-- After so many deliveries, a removal ends: Redis does nothing else meanwhile.
local MAX_REMOVED = 1000

-- events -> { the number of those that were removed, of those that were read }; events with a waiting delivery stay
function ops.remove(a)
  local removed, deliveries = 0, 0
  for i, id in ipairs(a) do
    if deliveries >= MAX_REMOVED then return { removed, i - 1 } end
    local member, _, size = locate(id)
    if member and call('HGET', p .. 'e:' .. id, 'w') == '0' then
      for _, endpoint in ipairs(endpointsOf(member, '')) do
        local state = string.sub(call('HGET', p .. 'e:' .. id, 'd' .. endpoint), 1, 1)
        deliveries = deliveries + 1
        if state ~= 'd' then
          call('ZREM', p .. 'failed', member .. '~' .. endpoint)
          count(state == 'x' and 'dead' or 'skipped', -1)
        end
      end
      for _, name in ipairs({ 'open', 'bad', 'fin' }) do call('ZREM', p .. name, member) end
      if isFirst(call('HGET', p .. 'e:' .. id, 'p')) then count('events', -1) end
      call('DEL', p .. 'e:' .. id, p .. 'b:' .. id)
      count('bytes', -size)
      removed = removed + 1
    end
  end
  return { removed, #a }
end

-- rank in the set of open events, before, most -> { next rank, or 0 at the end; events and parts of settled parts that wait for the first part }
function ops.orphans(a)
  local first, most = tonumber(a[1]), tonumber(a[3])
  local found = call('ZRANGE', p .. 'open', first, first + most - 1, 'WITHSCORES')
  local out = { 0 }
  for i = 1, #found, 2 do
    if tonumber(found[i + 1]) >= tonumber(a[2]) then return out end
    local id = idOf(found[i])
    local w, parts = unpack(call('HMGET', p .. 'e:' .. id, 'w', 'p'))
    if w == '0' and not isFirst(parts) then out[#out + 1], out[#out + 2] = id, parts end
  end
  if #found == 2 * most then out[1] = first + most end
  return out
end
`;
