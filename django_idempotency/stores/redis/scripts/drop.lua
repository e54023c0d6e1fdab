-- Delete a value, if it is still the one that was seen. ARGV: that value.
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
