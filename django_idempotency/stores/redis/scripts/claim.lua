-- Insert a record if there is none, and answer with the clock and what was there.
-- ARGV: lease and retention in microseconds, then signature and body. The layout is stores/packing.py's.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local clock, old = struct.pack('>d', now), redis.call('GET', KEYS[1])
if old and old ~= '' then return clock .. old end

local given = ARGV[1]
local lease, retention = struct.unpack('>dd', given)
local instants = struct.pack('>ddddd', now + lease, 0, now + retention, now, now + retention)
local value = string.sub(given, 17, 48) .. instants .. string.sub(given, 49)
redis.call('SET', KEYS[1], value, 'PX', math.max(math.ceil(math.max(lease, retention) / 1000), 1))
return clock
