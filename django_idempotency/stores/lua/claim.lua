-- Insert a record if there is none, and answer with the clock and what was there.
-- ARGV: lease and retention in microseconds, then seal, head, digest, life. The layout is core/payload.py's.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local clock, old = struct.pack('>d', now), redis.call('GET', KEYS[1])
if old and old ~= '' then return clock .. old end

local given = ARGV[1]
local lease, retention = struct.unpack('>dd', given)
local times = struct.pack('>ddd', now + lease, 0, now + retention)
local value = string.sub(given, 17, 70) .. times .. string.sub(given, 71, 103) .. clock .. string.sub(given, 104)
redis.call('SET', KEYS[1], value, 'PX', math.max(math.ceil(math.max(lease, retention) / 1000), 1))
return clock
