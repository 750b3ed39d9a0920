import { createServer } from 'node:http';
import { expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../../../src/core/clock.ts';
import { HttpClient } from '../../../../src/http/client/pool.ts';
import { toInboxEndpoint, toInboxMetadata } from '../../../../src/provider/events/event.ts';
import { withInbox } from '../../../../src/provider/inbox/inbox-sender.ts';
import type { Delivery } from '../../../../src/provider/queue/delivery-queue.ts';
import { startServer } from '../../../support/fixtures.ts';
import { until } from '../../../support/gate.ts';
import { anEndpoint } from '../../../support/provider/endpoint.ts';

/** A sender for an app that never responds, with one connection to it. */
async function startSender() {
  let requests = 0;
  const port = await startServer(createServer(() => requests++));
  const limits = { connectTimeout: 5_000, responseTimeout: 5_000, idleResponseTimeout: 5_000, idleTimeout: 5_000, maxAge: 5_000 };
  const pool = new HttpClient(systemClock).createUpstream({
    host: '127.0.0.1',
    port,
    ...limits,
    maxConnections: 1,
    maxHeadBytes: 16_384,
  });
  onTestFinished(() => pool.destroy());
  const other = { send: () => Promise.reject(new Error('not used')), retain: () => undefined, close: () => undefined };
  const sender = withInbox(other, () => ({ host: '127.0.0.1', port, pool }), systemClock);
  const endpoint = anEndpoint(toInboxEndpoint('billing'));
  const metadata = toInboxMetadata({ method: 'POST', path: '/', headers: ['Host', 'app', 'Content-Length', '0'] });
  const delivery: Delivery = {
    event: 'in_1',
    endpoint: endpoint.id,
    type: 'inbox',
    createdAt: 0,
    attempt: 0,
    tries: 0,
    isReplay: false,
    version: 0,
    due: 0,
    body: Buffer.alloc(0),
    metadata,
  };
  return { send: (signal: AbortSignal) => sender.send(delivery, endpoint, signal), received: () => requests };
}

test('an aborted attempt counts as sent only if the app can have got some of it', async () => {
  const { send, received } = await startSender();
  const [first, second] = [new AbortController(), new AbortController()];
  const sent = send(first.signal);
  await until(() => received() === 1);
  const waiting = send(second.signal);
  second.abort();
  expect(await waiting).toMatchObject({ outcome: 'aborted', isSent: false });
  first.abort();
  expect(await sent).toMatchObject({ outcome: 'aborted', isSent: true });
});
