-- protocol.exchange inside Redis: one atomic call. A test compares the two.
-- KEYS[1]: a hash with 'ledger', 'all', 'a:<account>' and 'p:<process>' as JSON. KEYS[2]: processes by their last report.
-- ARGV[1]: the report as JSON; the reply is JSON, too.
local report = cjson.decode(ARGV[1])
local now = tonumber(redis.call('TIME')[1])

local function get(field)
  local text = redis.call('HGET', KEYS[1], field)
  return text and cjson.decode(text)
end

local function put(field, value)
  redis.call('HSET', KEYS[1], field, cjson.encode(value))
end

local function zero(more)
  more.withdrawn, more.deposited, more.held = 0, 0, 0
  return more
end

local all = get('all') or zero({})
redis.call('HSETNX', KEYS[1], 'ledger', report.ledger)

local function forget(process)
  for name, own in pairs(get('p:' .. process).accounts) do
    local account = get('a:' .. name)
    account.held, all.held = account.held - own.held, all.held - own.held
    put('a:' .. name, account)
  end
  redis.call('HDEL', KEYS[1], 'p:' .. process)
  redis.call('ZREM', KEYS[2], process)
end

local function enter_traffic(account, own, said)
  for tier, weight in pairs(said.prior) do
    account.weights[tier] = account.weights[tier] or weight
  end
  local more, images = {}, 0
  for tier, count in pairs(said.tiers) do
    more[tier] = math.max(0, count - (own.tiers[tier] or 0))
    own.tiers[tier] = (own.tiers[tier] or 0) + more[tier]
    images = images + more[tier]
  end
  local decay = (1 - 1 / report.memory) ^ images
  for tier, weight in pairs(account.weights) do
    account.weights[tier] = weight * decay + (more[tier] or 0)
  end
  local settled = {}
  for place = 1, 3 do
    settled[place] = math.max(0, said.settled[place] - own.settled[place])
    own.settled[place] = own.settled[place] + settled[place]
  end
  decay = (1 - 1 / report.memory) ^ settled[1]
  account.planned = account.planned * decay + settled[2]
  account.taken = account.taken * decay + settled[3]
end

for _, process in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '(' .. (now - report.silent_s))) do
  if process ~= report.process then forget(process) end
end
local mine = get('p:' .. report.process)
if report.new and not mine then mine = {accounts = {}} end
if mine then redis.call('ZADD', KEYS[2], now, report.process) end
local reply = {
  ledger = redis.call('HGET', KEYS[1], 'ledger'), known = mine and true or false,
  processes = redis.call('ZCARD', KEYS[2]), accounts = {},
}

if mine then
  local accounts, before = {}, {}
  for place, said in ipairs(report.accounts) do
    local name = said.name
    local account = get('a:' .. name) or zero({weights = {}, planned = said.tokens, taken = said.tokens})
    local own = mine.accounts[name] or zero({tiers = {}, settled = {0, 0, 0}})
    accounts[place], mine.accounts[name], before[place] = account, own, own.withdrawn
    for _, key in ipairs({'withdrawn', 'deposited', 'held'}) do
      local more = said[key] - own[key]
      if key ~= 'held' then more = math.max(0, more) end -- cumulative: an older report changes nothing
      own[key], account[key], all[key] = own[key] + more, account[key] + more, all[key] + more
    end
    enter_traffic(account, own, said)
  end
  for place, said in ipairs(report.accounts) do
    local account, own = accounts[place], mine.accounts[said.name]
    local credit = report.burst + all.deposited - all.withdrawn
    if said.limit >= 0 then credit = math.min(credit, said.limit + account.deposited - account.withdrawn) end
    local granted = math.max(0, math.min(said.ask, credit))
    for _, sums in ipairs({own, account, all}) do
      sums.withdrawn, sums.held = sums.withdrawn + granted, sums.held + granted
    end
    put('a:' .. said.name, account)
    reply.accounts[place] = {
      name = said.name, before = before[place], withdrawn = own.withdrawn, credit = credit - granted,
      others = account.held - own.held, weights = account.weights, planned = account.planned, taken = account.taken,
    }
  end
  put('p:' .. report.process, mine)
  if report.ends then forget(report.process) end
end
put('all', all)
return cjson.encode(reply)
