import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FOUR_EXPECTED, sendFour } from '../../support/cluster/gate-pods.ts';
import type { Kube } from '../../support/cluster/kube-request.ts';
import { NODE_HINDRANCE } from '../../support/node/availability.ts';
import { type NodeCluster, useNode } from '../../support/node/use-node.ts';
import { createAppNamespace, type DeployedApp, deployApp } from '../../support/node/workloads.ts';

const MIB = 1024 * 1024;

describe.skipIf(NODE_HINDRANCE !== undefined)('on a real node', () => {
  let node: NodeCluster;
  let namespace: string;
  let app: DeployedApp;
  let pod: Kube;

  beforeAll(async () => {
    node = await useNode();
    await node.useChart();
    namespace = await createAppNamespace(node);
    app = await deployApp(node, namespace, 'billing');
    [pod] = app.pods;
  });
  afterAll(() => node?.cleanUp());

  test('forwards a signed delivery through a Service, and rejects tampered, replayed and stale ones', async () => {
    expect(await sendFour(app.url)).toEqual(FOUR_EXPECTED);
  });

  test('logs each decision where kubectl logs reads it', async () => {
    const codes = await node.waitFor(namespace, async () => {
      const lines = (await node.logs(namespace, pod.metadata.name, 'sidegate')).trim().split('\n');
      const found = lines.flatMap((line) => JSON.parse(line).code ?? []);
      return found.length >= 5 && found;
    });
    expect(codes).toEqual(['route_not_found', 'forwarded', 'signature_mismatch', 'duplicate', 'timestamp_outside_tolerance']);
  });

  test('runs as an unprivileged user with a read-only root, in the memory that its limit says', async () => {
    const sidecar = await node.exec(namespace, pod.metadata.name, 'sidegate', '/bin/bash', '-c', LOOK);
    expect(sidecar.stdout.split('\n')).toEqual([
      'Uid:\t64480\t64480\t64480\t64480',
      'CapEff:\t0000000000000000',
      'NoNewPrivs:\t1',
      'Seccomp:\t2',
      'read-only',
      '',
    ]);
    const memory = node.memoryOf(pod, 'sidegate');
    expect(memory.limit).toBe(192 * MIB);
    expect(memory.peak).toBeLessThan(memory.limit);
  });

  test('starts with at most one event that a probe failed, unless Node needs more than a second', async () => {
    const { items } = await node.ok('GET', `/api/v1/namespaces/${namespace}/events`);
    const ofSidecar = (items as Kube[]).filter(({ involvedObject }) => String(involvedObject.fieldPath).includes('{sidegate}'));
    const lines = (await node.logs(namespace, pod.metadata.name, 'sidegate')).split('\n');
    const { time } = JSON.parse(lines.find((line) => line.includes('"listening"')) ?? '{}');
    const { stdout } = await node.exec(namespace, pod.metadata.name, 'sidegate', '/bin/bash', '-c', AGE);
    const [now = 0, uptime = 0, ticks = 0] = stdout.split(' ').map(Number);
    const seconds = time / 1_000 - (now - (uptime - ticks / TICKS_PER_SECOND));
    console.log(`the sidecar listens ${seconds.toFixed(2)} s after its start`);
    // The kubelet counts the delay of the first probe from a time without fractions: it may come at once.
    const failed = ofSidecar.filter(({ reason }) => reason === 'Unhealthy');
    const others = ofSidecar.filter(({ reason }) => reason !== 'Unhealthy');
    expect(others.map(({ reason }) => reason).sort()).toEqual(['Created', 'Pulled', 'Started']);
    if (seconds < 0.9) expect(failed.reduce((sum, { count, series }) => sum + (series?.count ?? count ?? 1), 0)).toBeLessThan(2);
  });

  test('is reached by its name from other pods', async () => {
    const ask = `const r = await fetch('http://billing.${namespace}/hooks/billing', { method: 'POST' }); console.log(r.status)`;
    expect(await node.runClient(namespace, ask)).toEqual({ code: 0, output: '415\n' });
  });
});

/** The time, and the seconds since the start of the machine until now, and until the start of the process. */
const AGE = 'read -r uptime _ < /proc/uptime; set -- $(< /proc/1/stat); shift 21; echo "$EPOCHREALTIME $uptime $1"';
const TICKS_PER_SECOND = 100;

/** What the kernel says of the process, and whether a file can be created where the image has its folders. */
const LOOK = `while read -r line; do [[ $line =~ ^(Uid|CapEff|NoNewPrivs|Seccomp): ]] && echo "$line"; done < /proc/1/status
echo > /tmp/file || echo read-only`;
