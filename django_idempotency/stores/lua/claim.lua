-- Insert a record if there is none, and answer with the clock and what was there.
-- ARGV: seal, head, digest, life, lease and retention in microseconds. The layout is core/payload.py's.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local old = redis.call('GET', KEYS[1])
if not old then
    local lease_until, expires_at = now + ARGV[5], now + ARGV[6]
    local times = struct.pack('>ddd', lease_until, 0, expires_at)
    local value = ARGV[1] .. ARGV[2] .. times .. ARGV[3] .. struct.pack('>d', now) .. ARGV[4]
    local left = math.ceil((math.max(lease_until, expires_at) - now) / 1000)
    redis.call('SET', KEYS[1], value, 'PX', math.max(left, 1))
end
return {string.format('%.0f', now), old}
