-- Replays signed deliveries by wrk, in order, and prints what came back as one JSON line.
-- Arguments: list file, body file, "once" (each delivery one time only: running out is an error) or "again" (round and round).
dofile(debug.getinfo(1, 'S').source:match '^@(.*/)' .. 'report.lua')

function init(args)
  local lines = {}
  for line in io.lines(args[1]) do lines[#lines + 1] = line end
  local file = assert(io.open(args[2], 'rb'))
  local body = file:read '*a'
  file:close()

  local before_id = 'POST /hooks/billing HTTP/1.1\r\nHost: hooks.example\r\nUser-Agent: bench/1.0\r\n'
    .. 'Accept: */*\r\nContent-Type: application/json\r\nContent-Length: ' .. #body .. '\r\nWebhook-Id: '
  local at, count, is_once = 0, #lines, args[3] == 'once'

  function request()
    at = at + 1
    if at > count then
      if is_once then ran_out = ran_out + 1 end
      at = 1
    end
    local line = lines[at]
    local first = line:find(' ', 1, true)
    local second = line:find(' ', first + 1, true)
    return before_id .. line:sub(1, first - 1) .. '\r\nWebhook-Timestamp: ' .. line:sub(first + 1, second - 1)
      .. '\r\nWebhook-Signature: ' .. line:sub(second + 1) .. '\r\n\r\n' .. body
  end
end
