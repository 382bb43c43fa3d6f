// Publishes, gets, consumes, rejects and calls with amqplib.
// The broker is the first argument, else AMQP_URL.
'use strict'
const assert = require('node:assert/strict')
const { once } = require('node:events')
const amqp = require('amqplib')

const patience = 5000 // milliseconds

// The next `count` messages of a queue, each settled by `settle`.
async function deliveries (channel, queue, count, settle) {
  const got = []
  let consumer
  const all = new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error('no delivery')), patience).unref()
    consumer = channel.consume(queue, message => {
      got.push([message.content.toString(), message.fields.redelivered])
      settle(message)
      if (got.length === count) resolve()
    })
  })
  await all
  await channel.cancel((await consumer).consumerTag)
  return got
}

const checks = {
  async confirm ({ channel, queue }) {
    for (const body of ['one', 'two', 'three']) {
      channel.sendToQueue(queue, Buffer.from(body), { messageId: body, headers: { n: body.length } })
    }
    await channel.waitForConfirms()
  },

  async get ({ channel, queue }) {
    const message = await channel.get(queue)
    assert.equal(message.content.toString(), 'one')
    assert.equal(message.properties.messageId, 'one')
    assert.deepEqual({ ...message.properties.headers }, { n: 3 })
    assert.equal(message.fields.messageCount, 2)
    channel.ack(message)
  },

  async consume ({ channel, queue }) {
    const got = await deliveries(channel, queue, 2, message => channel.ack(message))
    assert.deepEqual(got, [['two', false], ['three', false]])
  },

  async reject ({ channel, queue }) {
    channel.sendToQueue(queue, Buffer.from('again'))
    const got = await deliveries(channel, queue, 2, message => channel.reject(message, !message.fields.redelivered))
    assert.deepEqual(got, [['again', false], ['again', true]])
    assert.equal(await channel.get(queue), false)
  },

  async return ({ channel }) {
    const returned = once(channel, 'return', { signal: AbortSignal.timeout(patience) })
    channel.publish('', 'no-such-queue', Buffer.from('lost'), { mandatory: true })
    const [message] = await returned
    assert.equal(message.fields.replyCode, 312)
    assert.equal(message.content.toString(), 'lost')
  },

  // A call and its answer through direct reply-to; the server works on a channel of its own.
  async rpc ({ connection, channel }) {
    const server = await connection.createChannel()
    const { queue } = await server.assertQueue('', { exclusive: true })
    await server.consume(queue, ({ content, properties: { replyTo, correlationId } }) =>
      server.sendToQueue(replyTo, Buffer.concat([content, Buffer.from(' pong')]), { correlationId }), { noAck: true })
    const reply = new Promise((resolve, reject) => {
      setTimeout(() => reject(new Error('no reply')), patience).unref()
      channel.consume('amq.rabbitmq.reply-to', resolve, { noAck: true })
    })
    channel.sendToQueue(queue, Buffer.from('ping'), { replyTo: 'amq.rabbitmq.reply-to', correlationId: '42' })
    const message = await reply
    assert.equal(message.content.toString(), 'ping pong')
    assert.equal(message.properties.correlationId, '42')
  }
}

async function main () {
  const connection = await amqp.connect(process.argv[2] ?? process.env.AMQP_URL)
  const channel = await connection.createConfirmChannel()
  const { queue } = await channel.assertQueue('', { exclusive: true })
  console.log('ok declare')
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check({ connection, channel, queue })
    } catch (error) {
      throw new Error(`${name}: ${error.message}`)
    }
    console.log('ok', name)
  }
  await connection.close()
}

main().catch(error => {
  console.error('FAILED', error.message)
  process.exit(1)
})
