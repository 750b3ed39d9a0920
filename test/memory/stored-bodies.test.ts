/** A sidecar that stores bodies, in the memory of the smallest container, under a flood of valid deliveries: it is not killed. */
import { Agent, request } from 'node:http';
import { afterEach, expect, test } from 'vitest';
import { type Delivery, makeDelivery } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { toRoute, until } from '../support/gate.ts';
import { type CgroupGate, NO_CGROUPS, startGateInCgroup } from '../support/memory-cgroup.ts';

const MEBIBYTES = 96;
const MAX_BODY_BYTES = 8 * 1_048_576;
const DELIVERIES = 4_000;
const CONCURRENCY = 16;
const QUIET_DELIVERIES = 20;
const STORED = 'sidegate_stored_bodies_total{outcome="stored"}';
/** The share of deliveries; the others may be rejected for a moment. */
const MIN_ACCEPTED = 0.9;
const app = useApp();
const agent = new Agent({ keepAlive: true, maxSockets: CONCURRENCY });
let gate: CgroupGate | undefined;

afterEach(async () => {
  agent.destroy();
  await gate?.stop();
  gate = undefined;
});

function post(port: number, { body, headers }: Delivery): Promise<number> {
  return new Promise((resolve, reject) => {
    const outgoing = request({ agent, port, host: '127.0.0.1', method: 'POST', path: '/hooks/billing', headers }, (response) =>
      response.resume().on('end', () => resolve(response.statusCode ?? 0)),
    );
    outgoing.on('error', reject).end(body);
  });
}

test.skipIf(NO_CGROUPS !== undefined)(`with ${MEBIBYTES} MiB a gate stores bodies within their bound`, async () => {
  const storeBody = { redact: ['$.items[*].secret'], maxBytes: '64Ki', retention: '1d' };
  const journal = { size: 10_000, maxBodyBytes: MAX_BODY_BYTES };
  gate = await startGateInCgroup(MEBIBYTES, { journal, routes: [toRoute(app.port, { webhook: { storeBody } })] });
  const { port, adminPort } = gate;
  const readMetric = async (name: string): Promise<number> => {
    const metrics = await (await fetch(`http://127.0.0.1:${adminPort}/metrics`)).text();
    return Number(
      metrics
        .split('\n')
        .find((line) => line.startsWith(`${name} `))
        ?.slice(name.length + 1),
    );
  };
  const deliver = (): Promise<number> => post(port, makeDelivery({ body: JSON.stringify({ items: [] }) }));
  for (let i = 0; i < QUIET_DELIVERIES; i++) expect(await deliver()).toBe(200);
  expect(await readMetric(STORED)).toBe(QUIET_DELIVERIES);
  const statuses = new Map<number, number>();
  let sent = 0;
  const work = async (): Promise<void> => {
    while (sent++ < DELIVERIES) {
      const items = Array.from({ length: 1 + (sent % 1_500) }, (_, i) => ({ i, secret: 'marked' }));
      const status = await post(port, makeDelivery({ body: JSON.stringify({ items }) }));
      app.received.length = 0;
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, work));
  expect([gate.oomKills(), gate.isAlive()]).toEqual([0, true]);
  // A gate that is near its limit stores nothing, and accepts deliveries nevertheless.
  expect(statuses.get(200)).toBeGreaterThan(DELIVERIES * MIN_ACCEPTED);
  expect(await readMetric('sidegate_stored_body_bytes')).toBeLessThanOrEqual(MAX_BODY_BYTES);
  // How much of a flood is stored depends on the pace of the machine. Afterwards bodies are stored again.
  const stored = await readMetric(STORED);
  await until(async () => {
    await deliver();
    return (await readMetric(STORED)) > stored;
  });
});
