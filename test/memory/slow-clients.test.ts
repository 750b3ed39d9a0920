/** Slow and silent clients against a gate in the memory of a small container; the latency meanwhile is measured by bench/attacks. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { type Sections, toRoute } from '../support/gate.ts';
import { readLimitHits, sendDelivery } from '../support/memory-attacks.ts';
import { type CgroupGate, NO_CGROUPS, startGateInCgroup } from '../support/memory-cgroup.ts';
import {
  holdSlowClients,
  LARGE_PATH,
  SLOW_ATTACKS,
  type SlowAttack,
  type SlowClients,
  toAddresses,
} from '../support/slow-clients.ts';

const MIB = 1_048_576;
const LARGE = Buffer.alloc(MIB);
const DELIVERIES_AFTER = 20;
const app = useApp();
let gate: CgroupGate | undefined;
let clients: SlowClients | undefined;

beforeEach(() => {
  app.handler = ({ url }, response) => {
    app.received.length = 0;
    response.end(url === LARGE_PATH ? LARGE : 'handled');
  };
});
afterEach(async () => {
  clients?.stop();
  clients = undefined;
  await gate?.stop();
  gate = undefined;
});

interface Scenario {
  readonly mebibytes: number;
  readonly attack: SlowAttack;
  readonly count: number;
  readonly addresses: readonly string[];
  readonly limits?: Sections;
}

/** Sends deliveries while the clients connect, and when all of them are there. Resolves with how many the gate has not closed. */
async function expectService({ mebibytes, attack, count, addresses, limits = {} }: Scenario): Promise<number> {
  const open = { name: 'open', match: { pathPrefix: '/open' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' };
  const running = await startGateInCgroup(mebibytes, { limits, routes: [toRoute(app.port), open] });
  gate = running;
  const { port, adminPort } = running;
  let left = Number.POSITIVE_INFINITY;
  const statuses: number[] = [];
  const deliveries = (async () => {
    while (left-- > 0 && running.isAlive()) statuses.push(await sendDelivery(port, makeDelivery()));
  })();
  clients = await holdSlowClients({ port, count, attack, addresses });
  left = DELIVERIES_AFTER;
  await deliveries;
  expect({ isAlive: running.isAlive(), oomKills: running.oomKills() }).toEqual({ isAlive: true, oomKills: 0 });
  expect(new Set(statuses), await readLimitHits(`http://127.0.0.1:${adminPort}`)).toEqual(new Set([200]));
  expect(running.workingSet()).toBeLessThan(mebibytes * MIB);
  return clients.open();
}

const ONE = ['127.0.0.66'];
const MANY = toAddresses(500);

describe.skipIf(NO_CGROUPS !== undefined)('a gate handles all deliveries', { timeout: 120_000 }, () => {
  describe.each([
    ['one client network', ONE],
    ['500 client networks', MANY],
  ])('with 96 MiB, while %s', (_title, addresses) => {
    test('opens 10,000 silent connections', async () => {
      const open = await expectService({ mebibytes: 96, attack: SLOW_ATTACKS.silence, count: 10_000, addresses });
      expect(open).toBeLessThanOrEqual(1_024);
    });

    test.each(['slow heads', 'slow bodies', 'slow reads'] as const)('has 2,000 connections with %s', async (name) => {
      await expectService({ mebibytes: 96, attack: SLOW_ATTACKS[name], count: 2_000, addresses });
    });
  });

  // So many connections would fill the memory: as many are open as heads for them fit into the heap.
  test.each([96, 128])('with %i MiB, while 10,000 silent connections are opened that its limits allow', async (mebibytes) => {
    const limits = { maxConnections: 12_000, maxConnectionsPerClient: 12_000, headTimeout: '5m' };
    const scenario = { mebibytes, attack: SLOW_ATTACKS.silence, count: 10_000, addresses: MANY, limits };
    expect(await expectService(scenario)).toBeGreaterThan(3 * mebibytes);
  });
});
