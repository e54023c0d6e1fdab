-- Keep a copy. Its instants are moved to this server's clock, by which they will be read.
-- ARGV: the copy, its writer's clock, how long to keep it in milliseconds.
local copy, ahead = read(ARGV[1]), now() - struct.unpack('>d', ARGV[2])
for _, name in ipairs(INSTANTS) do
    if copy[name] ~= 0 then copy[name] = copy[name] + ahead end
end
redis.call('SET', KEYS[1], write(copy), 'PX', ARGV[3])
return 1
