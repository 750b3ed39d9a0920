import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { makeHash } from '../../../src/users/password-hash.ts';
import { FOUR_EXPECTED, HOOK_ROUTE, sendFour } from '../../support/cluster/gate-pods.ts';
import type { Kube } from '../../support/cluster/kube-request.ts';
import { readLimitHits } from '../../support/memory-attacks.ts';
import { LOGIN_PATH, type NodeAttack } from '../../support/node/attack.ts';
import { NODE_HINDRANCE } from '../../support/node/availability.ts';
import { NODE_ADDRESS } from '../../support/node/machine.ts';
import { type NodeCluster, useNode } from '../../support/node/use-node.ts';
import { createAppNamespace, type DeployedApp, deployApp, QUIET_APP } from '../../support/node/workloads.ts';
import { toBasic } from '../../support/users.ts';

const ATTACK = join(import.meta.dirname, '..', '..', 'support', 'node', 'attack.ts');
/** In MiB; the last one is the default. */
const LIMITS = [96, 128, 192];
const DATA_PORT = 8480;
const ADMIN_PORT = 8481;
const MIB = 1024 * 1024;
const FLOOD_MS = 2_500;
/** One connection with tiny chunks was enough to get a sidecar killed; many only take each other's CPU time. */
const CONNECTIONS = {
  'chunks of one byte': 8,
  'forged bodies with a length': 256,
  'forged bodies in chunks': 256,
  'valid bodies': 256,
  'bodies that never end': 256,
  'guesses at passwords': 40,
} as const satisfies Readonly<Record<NodeAttack['attack'], number>>;
/** On a busy machine a flood leaves time for a few deliveries, of which a share says nothing. */
const FEW = 5;
const UNBOUNDED = { maxBufferedBytes: '1Gi', maxLargeBodies: 1_000, memoryShed: 1 };
const USER = ['ann', 'right'] as const;

describe.skipIf(NODE_HINDRANCE !== undefined)('on a real node', () => {
  const apps = new Map<number, DeployedApp>();
  let node: NodeCluster;
  let namespace: string;
  let unbounded: string;

  beforeAll(async () => {
    node = await useNode();
    await node.useChart();
    namespace = await createAppNamespace(node, {
      listen: { trustedProxies: [NODE_ADDRESS] },
      limits: { passwordThreads: 15 },
      routes: [
        HOOK_ROUTE,
        {
          name: 'admin',
          match: { pathPrefix: LOGIN_PATH },
          basic: { realm: 'admin', users: { file: '../secrets/users/users' }, requireTls: false },
        },
      ],
    });
    unbounded = await createAppNamespace(node, { limits: UNBOUNDED });
    const [name, password] = USER;
    const stringData = { users: `${name}:${await makeHash(password, { algorithm: 'argon2id' })}` };
    await node.create({ apiVersion: 'v1', kind: 'Secret', metadata: { name: 'users' }, stringData }, { namespace });
    await Promise.all(LIMITS.map(async (limit) => apps.set(limit, await deploy(namespace, limit, 'signing, users'))));
  });
  afterAll(() => node?.cleanUp());

  const deploy = (place: string, limit: number, secrets: string): Promise<DeployedApp> =>
    deployApp(node, place, `limit-${limit}`, {
      container: QUIET_APP,
      annotations: { 'sidegate.dev/memory-limit': `${limit}Mi`, 'sidegate.dev/secrets': secrets },
    });

  /** Returns the statuses of the valid deliveries that each pod got meanwhile and afterwards, in the order of the pods. */
  async function attack(pods: readonly Kube[], name: NodeAttack['attack']): Promise<number[][]> {
    const hosts: string[] = pods.map(({ status }) => status.podIP);
    const options: NodeAttack = {
      attack: name,
      hosts,
      port: DATA_PORT,
      connections: CONNECTIONS[name],
      milliseconds: FLOOD_MS,
    };
    const ended = await node.runInside(process.execPath, ATTACK, JSON.stringify(options));
    expect(ended.code, ended.stderr).toBe(0);
    const statuses: Record<string, number[]> = JSON.parse(ended.stdout);
    return hosts.map((host) => statuses[host] ?? []);
  }

  const read = ({ metadata }: Kube): Promise<Kube> =>
    node.ok('GET', `/api/v1/namespaces/${metadata.namespace}/pods/${metadata.name}`);

  /** The log lines that say why the app was not reached. */
  const readFailures = async ({ metadata }: Kube): Promise<string> =>
    (await node.logs(metadata.namespace, metadata.name, 'sidegate'))
      .split('\n')
      .filter((line) => line.includes('"status":502'))
      .slice(0, 5)
      .join('\n');

  test.each(Object.keys(CONNECTIONS) as NodeAttack['attack'][])(
    'sidecars with 96, 128 and 192 MiB handle deliveries and are not killed during a flood of %s',
    async (name) => {
      const pods = [...apps.values()].flatMap((app) => app.pods);
      const statuses = await attack(pods, name);
      for (const [at, pod] of pods.entries()) {
        const ends = toEnds(await read(pod));
        expect(ends, ends.restarts > 0 ? await node.report(namespace) : '').toEqual({ restarts: 0, reasons: [] });
        const all = statuses[at] ?? [];
        const rejected = all.filter((status) => status === 502 || status === 503).length;
        const hits = await readLimitHits(await node.forward(pod.status.podIP, ADMIN_PORT));
        if (rejected > 0) console.log(`${pod.metadata.name}: ${rejected} of ${all.length} deliveries rejected\n${hits}`);
        if (all.includes(502)) console.log(await readFailures(pod));
        // Three floods share the machine's CPUs: the app may not even get to accept a connection in time (502).
        // A sender may have to retry, but always gets a response.
        expect(all.filter((status) => status !== 200 && status !== 502 && status !== 503)).toEqual([]);
        expect(rejected, hits).toBeLessThan(Math.max(all.length / 2, FEW));
        expect(all.at(-1), hits).toBe(200);
        expect(node.memoryOf(pod, 'sidegate').oomKills).toBe(0);
      }
    },
  );

  test.each(LIMITS)('a sidecar with %i MiB still works after all floods, in the memory of its limit', async (limit) => {
    const { url, pods } = apps.get(limit) as DeployedApp;
    expect(await sendFour(url)).toEqual(FOUR_EXPECTED);
    const login = await fetch(`${url}${LOGIN_PATH}`, { headers: toBasic(...USER) });
    expect(login.status).toBe(200);
    const memory = node.memoryOf(pods[0], 'sidegate');
    console.log(`floods: ${Math.round(memory.peak / MIB)} MiB of ${limit} MiB were in use at most`);
    expect(memory.limit).toBe(limit * MIB);
  });

  test('the same flood kills a sidecar whose own limits exceed its memory, which the same look finds', async () => {
    const { pods } = await deploy(unbounded, 96, 'signing');
    await attack(pods, 'bodies that never end');
    const [pod] = pods;
    await node.waitFor(unbounded, async () => {
      const { restarts, reasons } = toEnds(await read(pod));
      return restarts > 0 && reasons.includes('OOMKilled');
    });
  });
});

/** How often the sidecar was started again, and why it ended. */
function toEnds({ status }: Kube): { readonly restarts: number; readonly reasons: readonly string[] } {
  const { restartCount, state, lastState } = status.initContainerStatuses.find(({ name }: Kube) => name === 'sidegate');
  return { restarts: restartCount, reasons: [state, lastState].flatMap((each) => each.terminated?.reason ?? []) };
}
