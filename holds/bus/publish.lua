#!lua name=holdfast

-- The log of events that several Holdfast processes share. Any process may publish:
--
--   redis-cli FCALL holdfast_publish 1 holdfast '{"channel":"news","data":"hi"}'
--
-- answers the event's ID. The one key is the log's name. What belongs to it has
-- the name as hash tag, so that all of it is in one slot of a cluster:
--
--   {NAME}:events  stream; entry <ID>-0 has the fields body, prev (the ID before
--                  it) and at (when it was taken, in microseconds)
--   {NAME}:meta    hash; start and head of the log, keep (microseconds) and
--                  entries (a count), and oldest: no entry was taken before it
--
-- A role that publishes needs: +fcall ~NAME ~{NAME}:*, and the commands
-- +time +hmget +hset +xadd +xlen +xtrim +xrange +xdel +unlink.
--
-- Each function is one step: nothing comes between a number and its entry.

local VERSION = 1
local MAX_BODY = 8388608
local LEAP = 1000000000

-- The head of each log as this server's functions left it, in memory alone. Where
-- it is not what is found, the log may have had more than it has now: the server
-- was restarted, a copy was put back, a replica was promoted. Then the next
-- number is a leap away: one step may be what somebody has seen already, of
-- another entry.
local left, count = {}, 0

local function leave(k, head)
  if not left[k.meta] then
    count = count + 1
    if count > 1000 then left, count = {}, 1 end
  end
  left[k.meta] = head
end

local function digits(n) return string.format('%.0f', n) end

local function clock()
  local now = redis.call('TIME')
  return now[1] * 1000000 + now[2]
end

-- keys_of gives the keys of a log, or an error.
local function keys_of(keys)
  local name = keys[1]
  if #keys ~= 1 or #name > 32 or not string.match(name, '^[a-z][a-z0-9_]*$') then
    return nil, redis.error_reply('ERR holdfast: give one key, the name of the log: a small letter, then small letters, digits and _, at most 32 in all')
  end
  return {events = '{' .. name .. '}:events', meta = '{' .. name .. '}:meta'}
end

-- another makes a log, or makes it another one: empty, above seen, with
-- another tag than old.
local function another(k, seen, old)
  local now = clock()
  local tag = tonumber(string.sub(redis.sha1hex(digits(now) .. k.meta), 1, 6), 16) % 1000
  if tag == old then tag = (tag + 1) % 1000 end
  seen = math.max(seen, left[k.meta] or 0)
  local head = math.max(math.floor(now / 1000), math.floor(seen / 1000) + 1) * 1000 + tag
  redis.call('UNLINK', k.events)
  redis.call('HSET', k.meta, 'start', digits(head), 'head', digits(head), 'oldest', digits(now))
  leave(k, head)
end

-- load gives what is known of a log; nil: there is none.
local function load(k)
  local m = redis.call('HMGET', k.meta, 'start', 'head', 'oldest', 'keep', 'entries')
  if not tonumber(m[1]) or not tonumber(m[2]) then return nil end
  return {
    start = tonumber(m[1]), head = tonumber(m[2]), oldest = tonumber(m[3]) or 0,
    keep = tonumber(m[4]) or 600000000, entries = tonumber(m[5]) or 100000,
  }
end

-- open is load, of a log that is made if there is none.
local function open(k)
  local log = load(k)
  if log then return log end
  another(k, 0, -1)
  return load(k)
end

-- retain has a log keep entries for an age and up to a count.
local function retain(k, log, keep, entries)
  keep, entries = tonumber(keep), tonumber(entries)
  if keep and entries and (keep ~= log.keep or entries ~= log.entries) then
    redis.call('HSET', k.meta, 'keep', digits(keep), 'entries', digits(entries))
    log.keep, log.entries = keep, entries
  end
end

-- fields gives body, prev and at of an entry; nil: it is none of ours.
local function fields(entry)
  local of = {}
  for i = 1, #entry[2], 2 do of[entry[2][i]] = entry[2][i + 1] end
  if not of.body or not tonumber(of.prev) or not tonumber(of.at) or string.sub(entry[1], -2) ~= '-0' then return nil end
  return of.body, of.prev, of.at
end

-- first gives the oldest entry's id, prev and at; nil: there is none.
local function first(k)
  local from = '-'
  while true do
    local entry = redis.call('XRANGE', k.events, from, '+', 'COUNT', 1)[1]
    if not entry then return nil end
    local body, prev, at = fields(entry)
    if body then return entry[1], tonumber(prev), tonumber(at) end
    from = '(' .. entry[1]
  end
end

-- trim lets go what is too much or too old, but not more than most entries.
local function trim(k, log, now, most)
  local length = redis.call('XLEN', k.events)
  if length > log.entries then
    length = math.max(log.entries, length - most)
    redis.call('XTRIM', k.events, 'MAXLEN', '=', length)
  end
  local oldest = log.oldest
  while length > 0 and now - oldest > log.keep do
    local id, _, at = first(k)
    oldest = at or now
    if not id or now - at <= log.keep or most == 0 then break end
    redis.call('XDEL', k.events, id)
    length, most = length - 1, most - 1
  end
  if oldest ~= log.oldest then redis.call('HSET', k.meta, 'oldest', digits(oldest)) end
end

-- add adds the bodies from args[from] on, and gives the last one's ID.
local function add(k, log, args, from)
  if #args < from then return redis.error_reply('ERR holdfast: give a body to publish') end
  for i = from, #args do
    if #args[i] > MAX_BODY then
      return redis.error_reply('ERR holdfast: a body has ' .. #args[i] .. ' bytes, at most ' .. MAX_BODY)
    end
  end
  local now = clock()
  local from_head = log.head + 1000
  if left[k.meta] ~= log.head then
    from_head = math.floor(math.max(log.head, left[k.meta] or 0) / 1000) * 1000 + log.head % 1000 + LEAP
  end
  local id = math.max(from_head, math.floor(now / 1000) * 1000 + log.head % 1000)
  if redis.call('XLEN', k.events) == 0 then
    log.oldest = now
    redis.call('HSET', k.meta, 'oldest', digits(now))
  end
  for i = from, #args do
    local added = redis.pcall('XADD', k.events, digits(id) .. '-0', 'body', args[i], 'prev', digits(log.head), 'at', digits(now))
    if type(added) == 'table' and added.err then -- the first, if any: nothing was added
      return redis.error_reply('ERR holdfast: ' .. k.events .. ' does not go with ' .. k.meta .. ', delete both: ' .. added.err)
    end
    log.head, id = id, id + 1000
  end
  redis.call('HSET', k.meta, 'head', digits(log.head))
  leave(k, log.head)
  trim(k, log, now, 2 * (#args - from) + 10)
  return log.head
end

-- Gives where a log stands: start, floor, head.
local function state(k, log)
  local _, prev = first(k)
  return log.start, prev or log.head, log.head
end

local function known(k, floor, at)
  return at <= floor or #redis.call('XRANGE', k.events, digits(at) .. '-0', digits(at) .. '-0') > 0
end

-- holdfast_publish NAME BODY...: for apps. Answers the last body's ID; the
-- ones before it are 1000 apart.
local function holdfast_publish(keys, args)
  local k, err = keys_of(keys)
  if err then return err end
  return add(k, open(k), args, 1)
end

-- holdfast_add NAME KEEP ENTRIES BODY...: the same, for nodes, who say what is kept.
local function holdfast_add(keys, args)
  local k, err = keys_of(keys)
  if err then return err end
  local log = open(k)
  retain(k, log, args[1], args[2])
  return add(k, log, args, 3)
end

-- holdfast_open NAME KEEP ENTRIES: makes the log if there is none, says what is kept,
-- and lets go what is too old. Answers start, floor, head.
local function holdfast_open(keys, args)
  local k, err = keys_of(keys)
  if err then return err end
  local log = open(k)
  retain(k, log, args[1], args[2])
  trim(k, log, clock(), 1000)
  return {state(k, log)}
end

-- holdfast_read NAME AFTER COUNT BYTES: what is behind a position, at one instant.
-- Answers start, floor, head, 1 if the log knows the position, then id, prev, at and
-- body of each entry; nothing if there is no log.
local function holdfast_read(keys, args)
  local k, err = keys_of(keys)
  if err then return err end
  local log = load(k)
  if not log then return false end
  local after, count, bytes = tonumber(args[1]), tonumber(args[2]), tonumber(args[3])
  local start, floor, head = state(k, log)
  local answer = {start, floor, head, known(k, floor, after) and 1 or 0}
  if count == 0 then return answer end
  -- Few at a time, so that not much more is read than is given.
  local at, few = '(' .. digits(after) .. '-0', 1
  while true do
    local entries = redis.call('XRANGE', k.events, at, '+', 'COUNT', math.min(few, count))
    for _, entry in ipairs(entries) do
      local body, prev, taken = fields(entry)
      if body then
        if #answer > 4 and #body > bytes then return answer end
        bytes, count = bytes - #body, count - 1
        for _, v in ipairs({string.sub(entry[1], 1, -3), prev, taken, body}) do answer[#answer + 1] = v end
      end
      at = '(' .. entry[1]
    end
    if #entries < few or count <= 0 or bytes <= 0 then return answer end
    few = math.min(few * 2, 16)
  end
end

-- holdfast_renew NAME SEEN UNKNOWN: makes the log another one, above SEEN, if its head is
-- below that still; with UNKNOWN 1, if it does not know that position still.
local function holdfast_renew(keys, args)
  local k, err = keys_of(keys)
  if err then return err end
  local log, seen = open(k), tonumber(args[1])
  local start, floor, head = state(k, log)
  if head < seen or args[2] == '1' and not known(k, floor, seen) then
    another(k, math.max(seen, head), head % 1000)
    log = load(k)
  end
  return {state(k, log)}
end

local function holdfast_version() return VERSION end

redis.register_function('holdfast_publish', holdfast_publish)
redis.register_function('holdfast_add', holdfast_add)
redis.register_function('holdfast_open', holdfast_open)
redis.register_function('holdfast_renew', holdfast_renew)
redis.register_function{function_name = 'holdfast_read', callback = holdfast_read, flags = {'no-writes'}}
redis.register_function{function_name = 'holdfast_version', callback = holdfast_version, flags = {'no-writes'}}
