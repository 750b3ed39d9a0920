import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { CGROUPS } from '../../prepare/node-availability.ts';
import { makePod } from '../../support/cluster/pods.ts';
import { until } from '../../support/gate.ts';
import { NODE_HINDRANCE } from '../../support/node/availability.ts';
import { createMachine } from '../../support/node/machine.ts';
import type { NodeConnection } from '../../support/node/node.ts';
import { APP_IMAGE } from '../../support/node/settings.ts';
import { NodeCluster } from '../../support/node/use-node.ts';
import { run } from '../../support/run.ts';

const SCRIPT = resolve(import.meta.dirname, '..', '..', 'prepare', 'cluster.ts');
const folder = mkdtempSync(join(tmpdir(), 'sidegate-traces-'));
const STATE = join(folder, 'cluster.json');
/** Folders in which the node's programs create files on machines that are nodes. */
const FOLDERS = ['/', '/etc', '/opt', '/run', '/usr/libexec', '/var/lib', '/var/log'];
/** What the kubelet and kube-proxy set on machines that are nodes. */
const SETTINGS = ['vm/overcommit_memory', 'vm/panic_on_oom', 'kernel/panic', 'kernel/panic_on_oops', 'net/ipv4/ip_forward'];

afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe.skipIf(NODE_HINDRANCE !== undefined)('a node', () => {
  test('leaves no process, mount, link, cgroup, file or setting behind, whether it is stopped or its owner is killed', async () => {
    const before = describeMachine();
    // Those of the node that other files share may end meanwhile.
    const known = listProcesses('containerd');
    const listNew = (): string[] => listProcesses('containerd').filter((id) => !known.includes(id));
    const { pid, connection } = await start();
    await runPod(connection);
    expect(describeMachine()).not.toEqual(before);
    expect(listNew()).not.toEqual([]);
    const stopped = await control('down');
    expect(stopped.code, stopped.stderr).toBe(0);
    await until(() => !isRunning(pid));
    expect(describeMachine()).toEqual(before);
    expect(listNew()).toEqual([]);

    const next = await start();
    await runPod(next.connection);
    process.kill(next.pid, 'SIGKILL');
    // The kernel ends all processes and with them their namespaces; the folder and empty cgroups stay until the next node is created.
    await until(() => !isRunning(next.pid) && listProcesses(next.connection.machine.cgroup).length === 0);
    await (await createMachine()).remove();
    expect(describeMachine()).toEqual(before);
    expect(listNew()).toEqual([]);
  });
});

const control = (action: string): ReturnType<typeof run> =>
  run(process.execPath, [SCRIPT, action], {
    SIDEGATE_CLUSTER_FILE: STATE,
    XDG_CACHE_HOME: process.env['XDG_CACHE_HOME'] ?? '',
    HOME: process.env['HOME'] ?? '',
  });

async function start(): Promise<{ pid: number; connection: NodeConnection }> {
  const { code, stdout, stderr } = await control('up');
  expect(code, stderr).toBe(0);
  expect(stdout).toMatch(/^export KUBECONFIG=\S+\/kubeconfig\n$/);
  return JSON.parse(readFileSync(STATE, 'utf8'));
}

/** A pod has namespaces, mounts, a link and cgroups. */
async function runPod(connection: NodeConnection): Promise<void> {
  const node = new NodeCluster(connection);
  const namespace = await node.createNamespace();
  await node.create(makePod('app', { metadata: { labels: { app: 'app' } }, container: { image: APP_IMAGE } }), { namespace });
  await node.waitForPods(namespace, 'app=app', 1);
}

/** All that a node changes on a machine where it is not in namespaces. */
function describeMachine(): object {
  const show = (command: string, ...args: readonly string[]): string => execFileSync(command, args, { encoding: 'utf8' });
  return {
    mounts: readFileSync('/proc/self/mounts', 'utf8'),
    links: show('ip', '-brief', 'link'),
    routes: show('ip', 'route'),
    tables: show('nft', 'list', 'tables'),
    cgroups: listGroups('sidegate-node-'),
    files: FOLDERS.map((path) => readdirSync(path)),
    nodes: readdirSync(tmpdir()).filter((name) => name.startsWith('sidegate-node-')),
    settings: SETTINGS.map((name) => readFileSync(`/proc/sys/${name}`, 'utf8')),
    hostname: show('hostname'),
  };
}

/** Processes whose command line contains this text. */
function listProcesses(text: string): string[] {
  return readdirSync('/proc').filter((pid) => {
    try {
      return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(text);
    } catch {
      return false;
    }
  });
}

function isRunning(pid: number): boolean {
  return readdirSync('/proc').includes(String(pid));
}

function listGroups(prefix: string): string[] {
  return readdirSync(CGROUPS).flatMap((each) => readdirSync(join(CGROUPS, each)).filter((name) => name.startsWith(prefix)));
}
