/** The memory of a body is freed and used again while other requests are in flight: no app may ever get bytes of another request. */
import type { Socket } from 'node:net';
import { expect, test } from 'vitest';
import { send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useGate, useScriptApp } from '../support/fixtures.ts';
import { startGate, toRoute } from '../support/gate.ts';

const DELIVERIES = 60;
const AT_ONCE = 6;
/** More than the kernel takes at once. */
const MOST_BYTES = 10_000_000;
const LETTERS = 'abcdefghijklmnopqrstuvwxyz';
const RESPONSE = 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n';

/** The bodies that the app read, complete or cut off. */
const received: string[] = [];

/** Reads all of a request before it responds, responds first and reads soon, or responds first and reads slowly: in turns. */
const app = useScriptApp((socket, connection) => {
  const kind = connection % 3;
  let text = '';
  /** Bytes of the current body that are missing; undefined before its head is complete. */
  let missing: number | undefined;
  const onBody = (): void => {
    if (missing === undefined || text.length < missing) return;
    if (kind === 0) socket.write(RESPONSE);
    received.push(text.slice(0, missing));
    text = text.slice(missing);
    missing = undefined;
    onHead();
  };
  const onHead = (): void => {
    const start = text.indexOf('\r\n\r\n') + 4;
    if (start < 4) return;
    const [, length = ''] = /\r\nContent-Length: (\d+)\r\n/i.exec(text.slice(0, start)) ?? [];
    missing = Number(length);
    text = text.slice(start);
    if (kind !== 0) socket.write(RESPONSE);
    onBody();
  };
  socket.on('data', (chunk) => {
    text += chunk.toString('latin1');
    if (missing === undefined) onHead();
    else onBody();
    if (kind !== 0) pauseFor(socket, kind === 1 ? 1 : 20);
  });
  socket.on('close', () => received.push(text));
});
const gate = useGate(() => startGate({ routes: [toRoute(app.port, { webhook: { maxBody: '10Mi' } })] }));

/** Reads no more for a number of turns of the event loop. */
function pauseFor(socket: Socket, turns: number): void {
  socket.pause();
  const wait = (left: number): void => void (left === 0 ? socket.resume() : setImmediate(() => wait(left - 1)));
  wait(turns);
}

test('an app that responds before it has read the body never reads bytes of another', async () => {
  const deliver = async (index: number): Promise<number> => {
    const letter = LETTERS[index % LETTERS.length] as string;
    const size = MOST_BYTES - ((index * 371_123) % (MOST_BYTES / 2));
    const { headers, body } = makeDelivery({ body: `"${letter.repeat(size)}"` });
    return (await send(gate.port, { headers, body })).status;
  };
  const statuses = new Set<number>();
  for (let first = 0; first < DELIVERIES; first += AT_ONCE) {
    const batch = Array.from({ length: AT_ONCE }, (_, i) => deliver(first + i));
    for (const status of await Promise.all(batch)) statuses.add(status);
  }
  // An early response to an app that closes the connection can be lost, and is then retried by the sender.
  expect([...statuses].filter((status) => ![200, 502, 503].includes(status))).toEqual([]);
  expect(statuses).toContain(200);
  for (const body of received) {
    const others = body.replaceAll(body[1] ?? '', '');
    expect(others.length, `a body that starts with ${JSON.stringify(body.slice(0, 40))}`).toBeLessThanOrEqual(2);
  }
  expect(received.filter((body) => body.endsWith('"')).length).toBeGreaterThan(DELIVERIES / 4);
  expect(await gate.metric('sidegate_escaped_errors_total{scope="process"}')).toBe(0);
}, 60_000);
