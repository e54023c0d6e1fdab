-- Return the clock and the value.
return struct.pack('>d', now()) .. (redis.call('GET', KEYS[1]) or '')
