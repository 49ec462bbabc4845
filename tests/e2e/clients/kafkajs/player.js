// Plays the steps of players.py with kafkajs: a step a line on stdin, what came of it a line on stdout.
'use strict'

const readline = require('readline')
// It is installed beside a copy of package.json, away from the sources.
const { Kafka, logLevel } = require(`${process.argv[3]}/node_modules/kafkajs`)
const { version } = require(`${process.argv[3]}/node_modules/kafkajs/package.json`)

// TLS and login, if the environment names them.
const { PLAYER_CA, PLAYER_SASL_MECHANISM, PLAYER_SASL_USER, PLAYER_SASL_PASSWORD, PLAYER_SASL_TOKEN } = process.env
const security = PLAYER_SASL_MECHANISM
  ? {
      ssl: { ca: [require('fs').readFileSync(PLAYER_CA)] },
      sasl: {
        mechanism: PLAYER_SASL_MECHANISM.toLowerCase(),
        username: PLAYER_SASL_USER,
        password: PLAYER_SASL_PASSWORD,
        oauthBearerProvider: async () => ({ value: PLAYER_SASL_TOKEN }),
      },
    }
  : {}

const kafka = new Kafka({
  ...security,
  brokers: [process.argv[2]],
  logLevel: logLevel.NOTHING,
  // A broker that is killed is back within a second.
  retry: { initialRetryTime: 50, maxRetryTime: 200, retries: 50 },
})
const producers = new Map()
const movers = new Map()
let groups = 0

/** A transactional producer: kafkajs asks for its id and epoch when the first transaction begins. */
class Transactional {
  static async open(transactionalId, transactionTimeout) {
    const producer = kafka.producer({ transactionalId, transactionTimeout, idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    const opened = new Transactional(producer)
    opened.next = await producer.transaction()
    return opened
  }

  constructor(producer) {
    this.producer = producer
  }

  async begin() {
    this.transaction = this.next || (await this.producer.transaction())
    this.next = undefined
  }

  send(batch) {
    return this.transaction.send(batch)
  }
}

class Plain {
  static async open() {
    const opened = new Plain()
    opened.producer = kafka.producer()
    await opened.producer.connect()
    return opened
  }

  send(batch) {
    return this.producer.send(batch)
  }
}

/** Takes records from a topic, as a member of a group, and sends them to another, with offsets, in one transaction. */
class Mover {
  static async open({ transactional_id, group, source, target, session_ms }) {
    const mover = new Mover()
    Object.assign(mover, { group, source, target, taken: [], waiting: undefined, moved: 0, error: undefined })
    mover.producer = await Transactional.open(transactional_id)
    mover.consumer = kafka.consumer({
      groupId: group,
      sessionTimeout: session_ms,
      heartbeatInterval: 100,
      maxWaitTimeInMs: 20,
    })
    await mover.consumer.connect()
    await mover.consumer.subscribe({ topics: [source], fromBeginning: true })
    return mover
  }

  /** Exactly `count` records; the first call starts the consumer. */
  async move(count, end) {
    if (!this.isRunning) {
      this.isRunning = true
      await this.consumer.run({
        autoCommit: false,
        eachBatch: async ({ batch }) => {
          this.taken.push(...batch.messages.map(message => ({ partition: batch.partition, ...message })))
          if (this.waiting) this.waiting()
        },
      })
    }
    while (this.taken.length < count) {
      await new Promise(resolve => (this.waiting = resolve))
    }
    const messages = this.taken.splice(0, count)
    await this.producer.begin()
    await this.send(messages)
    if (end === 'commit') await this.producer.transaction.commit()
    if (end === 'abort') {
      await this.producer.transaction.abort()
      this.taken.unshift(...messages)
    }
    return messages.map(({ value }) => value.toString())
  }

  async send(messages) {
    const copies = messages.map(({ partition, value }) => ({ partition, value }))
    const last = new Map(messages.map(({ partition, offset }) => [partition, offset]))
    const partitions = [...last].map(([partition, offset]) => ({ partition, offset: String(BigInt(offset) + 1n) }))
    await this.producer.send({ topic: this.target, messages: copies })
    const topics = [{ topic: this.source, partitions }]
    await this.producer.transaction.sendOffsets({ consumerGroupId: this.group, topics })
  }
}

/** The values in each partition, up to the one that marks the end. kafkajs reads as a member of a group only. */
async function read({ topic, partitions, isolation, until }) {
  const consumer = kafka.consumer({
    groupId: `reader-${process.pid}-${Date.now()}-${groups++}`,
    readUncommitted: isolation === 'read_uncommitted',
    maxWaitTimeInMs: 20,
  })
  const values = Array.from({ length: partitions }, () => [])
  let left = partitions
  try {
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
      const eachMessage = async ({ partition, message }) => {
        const value = message.value.toString()
        if (value !== until) values[partition].push(value)
        else if (--left === 0) resolve()
      }
      consumer.run({ autoCommit: false, eachMessage }).catch(reject)
    })
  } finally {
    await consumer.disconnect()
  }
  return values
}

const steps = {
  hello: () => ({ client: 'kafkajs', version }),
  open: async ({ name, transactional_id, timeout_ms }) => {
    const opened = transactional_id ? await Transactional.open(transactional_id, timeout_ms) : await Plain.open()
    producers.set(name, opened)
  },
  begin: ({ name }) => producers.get(name).begin(),
  send: async ({ name, topic, partition, values }) => {
    await producers.get(name).send({ topic, messages: values.map(value => ({ partition, value })) })
  },
  commit: ({ name }) => producers.get(name).transaction.commit(),
  abort: ({ name }) => producers.get(name).transaction.abort(),
  close: ({ name }) => producers.get(name).producer.disconnect(),
  read,
  mover: async step => {
    movers.set(step.name, await Mover.open(step))
  },
  move: ({ name, count, end }) => movers.get(name).move(count, end),
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const step = JSON.parse(line)
    let answer
    try {
      answer = { value: (await steps[step.do](step)) ?? null }
    } catch (error) {
      const first = error.cause && error.cause.type ? error.cause : error
      answer = { error: first.type || first.name, text: error.message }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  process.exit(0)
}

main()
