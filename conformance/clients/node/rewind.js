// Deploys a bug, rewinds the consumer to an hour ago, and replays, with amqplib.
// The broker is the first argument, else AMQP_URL. docs/streams.md tells the story.
'use strict'
const assert = require('node:assert/strict')
const amqp = require('amqplib')

const patience = 10000 // milliseconds
const stream = 'rewind-amqplib'

// Lets the consumer named billing work on the next messages: each is billed, then acknowledged.
async function work (connection, bill, count, args = {}) {
  const channel = await connection.createChannel()
  await channel.prefetch(3)
  const bills = []
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`only ${bills.length} deliveries`)), patience).unref()
    channel.consume(stream, message => {
      if (bills.length === count) return
      bills.push([message.properties.headers['x-stream-offset'], bill(Number(message.content))])
      channel.ack(message)
      if (bills.length === count) resolve()
    }, { arguments: { 'x-stream-consumer-name': 'billing', ...args } }).catch(reject)
  })
  await channel.close()
  return bills
}

async function main () {
  const connection = await amqp.connect(process.argv[2] || process.env.AMQP_URL)
  const channel = await connection.createConfirmChannel()
  await channel.deleteQueue(stream)
  await channel.assertQueue(stream, { durable: true, arguments: { 'x-queue-type': 'stream', 'x-max-age': '7D' } })
  const amounts = Array.from({ length: 10 }, (_, i) => i + 1)
  for (const amount of amounts) channel.sendToQueue(stream, Buffer.from(String(amount)))
  await channel.waitForConfirms()

  const ok = name => console.log('ok', name)
  const buggy = amount => amount < 5 ? amount * 100 : 0
  const fixed = amount => amount * 100
  const right = amounts.map(amount => [amount - 1, amount * 100])

  let bills = await work(connection, buggy, 10, { 'x-stream-offset': 'first' })
  assert.deepEqual(bills.map(([, bill]) => bill), [100, 200, 300, 400, 0, 0, 0, 0, 0, 0])
  ok('the bug is deployed')

  const hourAgo = { '!': 'timestamp', value: Math.floor(Date.now() / 1000) - 3600 }
  bills = await work(connection, fixed, 4, { 'x-stream-offset': hourAgo })
  assert.deepEqual(bills, right.slice(0, 4))
  ok('rewound by a time')
  bills = await work(connection, fixed, 6)
  assert.deepEqual(bills, right.slice(4))
  ok('goes on after a break')
  bills = await work(connection, fixed, 10, { 'x-stream-offset': '1h' })
  assert.deepEqual(bills, right)
  ok('rewound by an interval')

  channel.sendToQueue(stream, Buffer.from('11'))
  await channel.waitForConfirms()
  bills = await work(connection, fixed, 1, { 'x-stream-offset': 'stored' })
  assert.deepEqual(bills, [[10, 1100]])
  ok('only what is new')

  await channel.deleteQueue(stream)
  await connection.close()
}

main().catch(error => {
  console.error('FAILED', error)
  process.exit(1)
})
