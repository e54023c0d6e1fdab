-- Answer with the clock and what is there.
local time = redis.call('TIME')
return struct.pack('>d', time[1] * 1000000 + time[2]) .. (redis.call('GET', KEYS[1]) or '')
