/** Requests that arrive in pieces, cut anywhere, on one connection: the app gets exactly the bodies that were signed. */
import { connect } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { toRequestText, toStatuses } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp, useGate } from '../support/fixtures.ts';
import { startGate, toRoute } from '../support/gate.ts';
import { fc } from '../support/property.ts';

const app = useApp();
const gate = useGate(() => startGate({ routes: [toRoute(app.port)] }));

/** Smaller and larger than what is read at once, joined, and collected without the queue of the stream. */
const SIZES = [2, 3, 1_023, 1_024, 1_025, 16_383, 65_535, 65_536, 65_537, 70_000, 200_000];

interface Planned {
  readonly size: number;
  readonly isForged: boolean;
  readonly framing: 'length' | 'chunked';
}

const requests = fc.array(
  fc.record({
    size: fc.constantFrom(...SIZES),
    isForged: fc.boolean(),
    framing: fc.constantFrom('length' as const, 'chunked' as const),
  }),
  { minLength: 1, maxLength: 4 },
);

function toRequest({ size, isForged, framing }: Planned, isLast: boolean): { readonly text: string; readonly body: string } {
  const delivery = makeDelivery({ body: `"${'x'.repeat(size - 2)}"` });
  const body = delivery.body.toString();
  const fields = Object.entries(delivery.headers).map(([name, value]) => `${name}: ${value}`);
  const sent = isForged ? body.replace('"', '1') : body;
  const isChunked = framing === 'chunked';
  const length = isChunked ? 'Transfer-Encoding: chunked' : `Content-Length: ${body.length}`;
  const lines = ['POST /hooks/billing HTTP/1.1', 'Host: a', length, ...(isLast ? ['Connection: close'] : []), ...fields];
  return { text: toRequestText(lines, isChunked ? `${body.length.toString(16)}\r\n${sent}\r\n0\r\n\r\n` : sent), body };
}

/** Sends the pieces in different turns of the event loop, and resolves with the responses. */
async function sendPieces(port: number, pieces: readonly string[]): Promise<string> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true });
  let text = '';
  socket.setEncoding('latin1').on('data', (chunk: string) => {
    text += chunk;
  });
  const closed = new Promise((resolve) => socket.on('error', () => undefined).on('close', resolve));
  for (const piece of pieces) {
    socket.write(piece, 'latin1');
    for (let turn = 0; turn < 3; turn++) await nextTurn();
  }
  await closed;
  return text;
}

function cut(text: string, points: readonly number[]): string[] {
  const sorted = [0, ...points.map((point) => Math.floor(point * text.length)), text.length].toSorted((a, b) => a - b);
  return sorted.slice(1).map((end, index) => text.slice(sorted[index], end));
}

test('requests that arrive in pieces are accepted and rejected as if they were whole', async () => {
  const points = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 20 });
  await fc.assert(
    fc.asyncProperty(requests, points, async (pieces, cuts) => {
      app.received.length = 0;
      const made = pieces.map((piece, index) => toRequest(piece, index === pieces.length - 1));
      const text = await sendPieces(gate.port, cut(made.map((each) => each.text).join(''), cuts));
      expect(toStatuses(text)).toEqual(pieces.map(({ isForged }) => (isForged ? 401 : 200)));
      const bodies = app.received.map(({ body }) => body.toString());
      expect(bodies).toEqual(made.filter((_, index) => pieces[index]?.isForged === false).map(({ body }) => body));
    }),
    { numRuns: 150 },
  );
}, 60_000);

test('a request whose head and body arrive byte by byte is accepted', async () => {
  app.received.length = 0;
  const { text, body } = toRequest({ size: 300, isForged: false, framing: 'length' }, true);
  expect(toStatuses(await sendPieces(gate.port, [...text]))).toEqual([200]);
  expect(app.received.map((each) => each.body.toString())).toEqual([body]);
});
