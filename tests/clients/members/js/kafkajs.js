// A worker on kafkajs: a twin of worker.py, with the same argument and the same JSON lines.
'use strict'
const { Kafka, logLevel } = require('kafkajs')

const WORK_MS = 250
const { subscribe, config } = JSON.parse(process.argv[2])
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))
const now = () => Number(process.hrtime.bigint()) / 1e9
const say = (what, fields) => process.stdout.write(JSON.stringify({ at: now(), what, ...fields }) + '\n')

const kafka = new Kafka({
  clientId: config['client.id'], brokers: config['bootstrap.servers'].split(','), logLevel: logLevel.ERROR,
  retry: { retries: 1000, maxRetryTime: 1000 }, // by default it ends itself after five
})
const settings = { groupId: config['group.id'] }
if (config['session.timeout.ms']) settings.sessionTimeout = config['session.timeout.ms']
if (config['heartbeat.interval.ms']) settings.heartbeatInterval = config['heartbeat.interval.ms']
const consumer = kafka.consumer(settings)
const admin = kafka.admin()

/** What it holds, by "topic/partition", and how far it came; null until it is known where to resume. */
const offsets = new Map()
let stop = false

function letGo (what) {
  const partitions = [...offsets.keys()]
  offsets.clear()
  if (partitions.length) say(what, { partitions })
}

consumer.on(consumer.events.REBALANCING, () => letGo('revoke'))
consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  letGo('lost') // it rejoined without a word: its session had ended
  const partitions = Object.entries(payload.memberAssignment)
    .flatMap(([topic, numbers]) => numbers.map(number => `${topic}/${number}`))
  partitions.forEach(one => offsets.set(one, null))
  say('assign', { partitions, member: payload.memberId })
})

async function committed () {
  const found = await admin.fetchOffsets({ groupId: config['group.id'], topics: subscribe })
  return new Map(found.flatMap(({ topic, partitions }) =>
    partitions.map(({ partition, offset }) => [`${topic}/${partition}`, Math.max(Number(offset), 0)])))
}

async function resume () {
  if (![...offsets.values()].includes(null)) return
  for (const [partition, offset] of await committed()) {
    if (offsets.get(partition) !== null) continue
    offsets.set(partition, offset)
    say('resume', { partition, offset })
  }
}

async function work () {
  await resume()
  const tried = {}
  for (const [name, offset] of offsets) {
    if (offset === null) continue
    offsets.set(name, offset + 1)
    tried[name] = offset + 1
  }
  if (!Object.keys(tried).length) return
  const asked = Object.entries(tried).map(([name, offset]) => {
    const [topic, partition] = name.split('/')
    return { topic, partition: Number(partition), offset: String(offset) }
  })
  const began = now()
  say('try', { offsets: tried })
  try {
    await consumer.commitOffsets(asked)
    const found = await committed() // kafkajs says nothing when it commits nothing as it rejoins
    for (const [name, offset] of Object.entries(tried)) {
      if (found.get(name) !== offset) throw new Error(`${name} is at ${found.get(name)}, not ${offset}`)
    }
    say('commit', { began, offsets: tried })
  } catch (error) {
    say('refused', { began, message: error.message })
  }
}

async function main () {
  process.on('SIGTERM', () => { stop = true })
  await admin.connect()
  await consumer.connect()
  await consumer.subscribe({ topics: subscribe })
  await consumer.run({ autoCommit: false, eachMessage: async () => {} })
  while (!stop) {
    try {
      await work()
    } catch (error) {
      say('error', { message: error.message })
    }
    await sleep(WORK_MS)
  }
  letGo('revoke')
  await consumer.disconnect()
  await admin.disconnect()
  say('closed', {})
}

main().catch(error => { console.error(error); process.exit(1) })
