-- Answer with the clock and what is there.
return struct.pack('>d', now()) .. (redis.call('GET', KEYS[1]) or '')
