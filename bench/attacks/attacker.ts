/** A process that attacks a port on loopback until it is ended: `node attacker.ts NAME PORT`. */
import { connect, type Socket } from 'node:net';
import { argv } from 'node:process';
import { makeDelivery } from '../../test/support/deliveries.ts';
import { SLOW_ATTACKS, toAddresses } from '../../test/support/slow-clients.ts';

/** Differs from the address of the valid deliveries. */
const LOCAL_ADDRESS = '127.0.0.66';
const TICK_MS = 100;
const MAX_NEW_PER_TICK = 10;
const MAX_NEW_FROM_MANY = 100;
/** Ends the process even if the parent does not. */
const LONGEST_LIFE_MS = 120_000;

const [, , name = '', portText = ''] = argv;
const port = Number(portText);
const open = new Set<Socket>();
let hasBegun = false;

function dial(isRead = true, localAddress = LOCAL_ADDRESS): Socket {
  const socket = connect({ port, host: '127.0.0.1', localAddress });
  open.add(socket);
  socket.on('error', () => undefined).on('close', () => open.delete(socket));
  if (isRead) socket.resume();
  return socket;
}

/** Opens all at once at first, and later a few per tick, because the test measures the resources of connections, not a flood of handshakes. */
function dialMissing(most: number, text: string, isRead = true): void {
  const missing = most - open.size;
  for (let i = 0; i < (hasBegun ? Math.min(missing, MAX_NEW_PER_TICK) : missing); i++) dial(isRead).write(text);
  hasBegun = true;
}

const MANY = toAddresses(500);
let dialled = 0;

/** From 500 client networks; the gate replaces idle connections above its limit, so they are dialled again and again. */
function dialFromMany(most: number, text: string): void {
  const missing = Math.min(most - open.size, MAX_NEW_FROM_MANY);
  for (let i = 0; i < missing; i++) dial(true, MANY[dialled++ % MANY.length]).write(text);
}

function post(path: string, fields: readonly string[], body: string): string {
  return `POST ${path} HTTP/1.1\r\nHost: a\r\n${fields.map((field) => `${field}\r\n`).join('')}Content-Length: ${body.length}\r\n\r\n${body}`;
}

function toForged(path: string, body: string, more: readonly string[] = []): string {
  const { headers } = makeDelivery({ body, secret: 'whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA' });
  return post(path, [...Object.entries(headers).map(([field, value]) => `${field}: ${value}`), ...more], body);
}

const LARGE_JSON = JSON.stringify({
  items: Array.from({ length: 4_000 }, (_, id) => ({ id, name: `an item ${id}`, note: 'é' })),
});
const SLOW_UPLOAD = 'POST /open HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n';

/** The action of each connection, ten times per second. */
const ATTACKS: Readonly<Record<string, () => void>> = {
  'silent connections': () => dialMissing(1_100, ''),
  '10,000 silent connections of 500 clients': () => dialFromMany(10_000, SLOW_ATTACKS.silence.begin()),
  'slow heads': () => {
    dialFromMany(900, SLOW_ATTACKS['slow heads'].begin());
    for (const socket of open) socket.write(SLOW_ATTACKS['slow heads'].more);
  },
  'slow bodies of deliveries': () => {
    dialFromMany(900, SLOW_ATTACKS['slow bodies'].begin());
    for (const socket of open) socket.write(SLOW_ATTACKS['slow bodies'].more);
  },
  'slow uploads to an open route': () => {
    dialMissing(400, SLOW_UPLOAD);
    for (const socket of open) socket.write('x'.repeat(60));
  },
  'responses that nobody reads': () => dialMissing(400, 'GET /open/large HTTP/1.1\r\nHost: a\r\n\r\n', false),
  'requests that the app takes 1 s for': () =>
    dialMissing(400, 'GET /open/slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n'),
  'forged deliveries of 240 kB': () => dial().end(toForged('/hooks/billing', LARGE_JSON)),
  'spaces in tracestate': () => {
    const tracestate = `tracestate: a=${' '.repeat(15_000)}b`;
    const traceparent = `traceparent: 00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
    dial().end(post('/open', [traceparent, tracestate, 'Connection: close'], '{}'));
  },
};

const attack = ATTACKS[name];
if (attack === undefined) throw new Error(`no attack is called "${name}"; there are ${Object.keys(ATTACKS).join(', ')}`);
setInterval(attack, TICK_MS);
setTimeout(() => process.exit(0), LONGEST_LIFE_MS);
