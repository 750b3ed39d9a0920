-- Sends GET requests by wrk, round and round, and prints what came back as one JSON line.
-- Argument: a file with a line for each request, its header fields parted by TAB; an empty line is a request without any.
dofile(debug.getinfo(1, 'S').source:match '^@(.*/)' .. '../report.lua')

function init(args)
  local requests, at = {}, 0
  local start = 'GET ' .. wrk.path .. ' HTTP/1.1\r\nHost: app.example\r\nUser-Agent: bench/1.0\r\nAccept: */*\r\n'
  for line in io.lines(args[1]) do
    local fields = line == '' and '' or line:gsub('\t', '\r\n') .. '\r\n'
    requests[#requests + 1] = start .. fields .. '\r\n'
  end

  function request()
    at = at % #requests + 1
    return requests[at]
  end
end
