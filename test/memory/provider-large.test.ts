/** A sidecar with an inbox for large deliveries, in the memory of a container by default. */
import { createHmac } from 'node:crypto';
import { afterEach, describe, expect, onTestFinished, test } from 'vitest';
import { send } from '../support/client.ts';
import { SECRET } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { findFreePort } from '../support/free-port.ts';
import { type Sections, startGate, toRoute, until } from '../support/gate.ts';
import { type CgroupGate, NO_CGROUPS, startGateInCgroup } from '../support/memory-cgroup.ts';
import { floodPipelined } from '../support/pipelined-flood.ts';
import { call, listDeliveries, postEvent } from '../support/provider/client.ts';
import { type Engine, startQueue } from '../support/queue/engines.ts';

const MIB = 1024 * 1024;
/** The sizes that `check` accepts: results of PostgreSQL are hexadecimal. */
const LARGE = { SQLite: 24 * MIB, PostgreSQL: 10 * MIB };
const RETRY_MS = 500;
const app = useApp();
let gate: CgroupGate;

afterEach(() => gate.stop());

async function start(mebibytes: number, engine: Engine): Promise<number> {
  const port = await findFreePort();
  const webhook = { scheme: 'github', ack: 'onAccept', maxBody: '25Mi' };
  gate = await startGateInCgroup(mebibytes, {
    routes: [toRoute(app.port, { match: { path: '/hook' }, route: { name: 'github' }, webhook })],
    provider: { address: `127.0.0.1:${port}`, queue: await startQueue(engine) },
  });
  return port;
}

/** Repeats it while there is no memory for it. */
async function deliver(id: string, bytes: number, fill = 'x'): Promise<void> {
  const body = JSON.stringify({ id, text: fill.repeat(bytes / JSON.stringify(fill).slice(1, -1).length) });
  const signature = createHmac('sha256', SECRET).update(body).digest('hex');
  const headers = {
    'Content-Type': 'application/json',
    'X-GitHub-Delivery': id,
    'X-Hub-Signature-256': `sha256=${signature}`,
  };
  const status = await until(async () => {
    if (!gate.isAlive()) throw new Error('the sidecar was killed');
    const answer = await send(gate.port, { path: '/hook', headers, body });
    if (answer.status !== 503) return answer.status;
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    return undefined;
  });
  expect(status).toBe(202);
}

function expectAlive(): void {
  expect({ isAlive: gate.isAlive(), oomKills: gate.oomKills() }).toEqual({ isAlive: true, oomKills: 0 });
}

test.skipIf(NO_CGROUPS !== undefined)(
  'a replica without the memory for an event sends those behind it, reports it, and leaves it to one that has the memory',
  async () => {
    app.handler = (_request, response) => {
      app.received.length = 0;
      response.end();
    };
    const queue = await startQueue('PostgreSQL');
    const egress = { allowHttp: true, allowPrivate: ['127.0.0.0/8'] };
    const toSections = (provider: Sections): Sections => ({
      routes: [toRoute(app.port)],
      provider: { address: '127.0.0.1:0', queue, egress, maxEventSize: '40Mi', ...provider },
    });
    const accepting = await startGate(toSections({ roles: ['accept'] }));
    onTestFinished(async () => {
      await accepting.stop();
    });
    const port = accepting.providerPort;
    await call(port, 'POST', '/v1/endpoints', { id: 'acme', url: `http://127.0.0.1:${app.port}/` });
    gate = await startGateInCgroup(192, toSections({ roles: ['deliver'] }));
    await postEvent(port, { type: 'large', data: { text: 'x'.repeat(25 * MIB) } });
    for (let i = 0; i < 20; i++) await postEvent(port, { type: 'small' });
    const listWaiting = async (): Promise<unknown[]> => (await listDeliveries(port, '?state=waiting')).map(({ type }) => type);
    await until(async () => (await listWaiting()).length === 1);
    expect(await listWaiting()).toEqual(['large']);
    const lines = gate.log().filter(({ msg }) => msg === 'delivery_held');
    expect(lines).toMatchObject([{ endpoint: 'acme' }]);
    expect(lines[0]?.['bytes']).toBeGreaterThan(25 * MIB);
    const sending = await startGate(toSections({ roles: ['deliver'] }));
    onTestFinished(async () => {
      await sending.stop();
    });
    await until(async () => (await listWaiting()).length === 0);
    expectAlive();
  },
);

describe.skipIf(NO_CGROUPS !== undefined).each<Engine>(['SQLite', 'PostgreSQL'])(
  'a sidecar with 192 MiB and its queue in %s',
  (engine) => {
    test('survives large deliveries for a slow app, and delivers all of them', async () => {
      const timers = new Set<NodeJS.Timeout>();
      onTestFinished(() => timers.forEach(clearTimeout));
      const sizes: number[] = [];
      app.handler = ({ body }, response) => {
        sizes.push(body.length);
        app.received.length = 0;
        timers.add(setTimeout(() => response.end(), 2_000));
      };
      await start(192, engine);
      await Promise.all(Array.from({ length: 5 }, (_, index) => deliver(`large-${index}`, LARGE[engine])));
      await until(() => sizes.length === 5 || !gate.isAlive());
      expect(sizes.every((size) => size > LARGE[engine])).toBe(true);
      expectAlive();
    });

    test('survives clients that request a large stored event, also without reading it', async () => {
      app.handler = (_request, response) => {
        app.received.length = 0;
        response.end();
      };
      const port = await start(192, engine);
      await deliver('large', LARGE[engine] - MIB, '"');
      const [{ id = '' } = {}] = (await call(port, 'GET', '/v1/events')).body['data'] as { id?: string }[];
      const read = await Promise.all(Array.from({ length: 4 }, () => call(port, 'GET', `/v1/events/${id}`)));
      expect(read.map(({ status }) => status).filter((status) => status !== 503)).toContain(200);
      const request = `GET /v1/events/${id} HTTP/1.1\r\nHost: localhost\r\n\r\n`;
      await floodPipelined({ port, connections: 20, milliseconds: 2_000, request, reads: false });
      await deliver('next', 1_000);
      expectAlive();
    });
  },
);
