/** A Kubernetes node with its control plane, in namespaces of this machine: real containers, a real kubelet and a real network. */
import { spawn } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { buildDockerfileImage, canBuildDockerfileImage } from '../../prepare/dockerfile-image.ts';
import type { Connection } from '../cluster/control-plane.ts';
import { toKubeconfig } from '../cluster/kubeconfig.ts';
import { forward } from './forward.ts';
import { buildImages } from './images.ts';
import { createMachine, type Machine, NODE_ADDRESS, toInside } from './machine.ts';
import { toArchive } from './oci.ts';
import {
  type Credentials,
  startApi,
  startContainerd,
  startControllers,
  startKubelet,
  startRelay,
  writeFiles,
} from './programs.ts';
import { API_PORT, RUNTIME } from './settings.ts';

/** Ten times the usual. */
const START_MS = 110_000;

/** How tests reach the node; plain data. */
export interface NodeConnection extends Connection {
  readonly machine: Machine;
}

/** A node that runs. */
export interface RunningNode {
  readonly connection: NodeConnection;
  /** Ends everything on the node at once and starts it again; what is on its disk stays. */
  restart(): Promise<void>;
  /** Ends it and removes every trace. */
  stop(): Promise<void>;
}

/** Starts a node, and returns when it can run pods. */
export async function startNode(): Promise<RunningNode> {
  // Not in the time of the start: after a change of dependencies, it takes some minutes.
  if (canBuildDockerfileImage()) await buildDockerfileImage();
  const owner = await createMachine();
  const { machine } = owner;
  const { folder } = machine;
  const api = await forward(machine, NODE_ADDRESS, API_PORT);
  const stop = async (): Promise<void> => {
    await api.close();
    await owner.remove();
  };
  try {
    const credentials = writeFiles(machine);
    const connection = toConnection(machine, credentials, api.port);
    const images = buildImages(folder).then(toArchive);
    images.catch(() => undefined);
    const start = async (archive?: Promise<Uint8Array[]>): Promise<void> => {
      await owner.boot();
      await startRelay(machine);
      await Promise.all([
        startContainerd(machine).then(async () => archive && importImages(machine, await archive)),
        startApi(machine, connection).then(() => startControllers(machine)),
      ]);
      await startKubelet(machine, connection);
    };
    await inTime(machine, start(images));
    return {
      connection,
      stop,
      async restart() {
        await owner.halt();
        await inTime(machine, start());
      },
    };
  } catch (thrown) {
    await stop();
    throw thrown;
  }
}

/** Rejects if the node does not start in time, with the last lines of its programs. */
async function inTime(machine: Machine, start: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<'late'>((done) => {
    timer = setTimeout(done, START_MS, 'late');
  });
  const outcome = await Promise.race([start, late]);
  clearTimeout(timer);
  if (outcome !== 'late') return;
  const logs = join(machine.folder, 'logs');
  const ends = readdirSync(logs).map((name) => `${name}: ${readFileSync(join(logs, name), 'utf8').slice(-500)}`);
  throw new Error(`the node did not start in ${START_MS / 1_000} s\n${ends.join('\n')}`);
}

function toConnection(machine: Machine, { ca, token, ...credentials }: Credentials, port: number): NodeConnection {
  const access = { server: `https://127.0.0.1:${port}`, ca, token: token('admin') };
  const kubeconfigFile = join(machine.folder, 'kubeconfig');
  writeFileSync(kubeconfigFile, toKubeconfig(access), { mode: 0o600 });
  return {
    ...access,
    ...credentials,
    version: '1.36',
    hasControllers: true,
    kubeconfigFile,
    users: { developer: token('developer'), nobody: token('nobody') },
    machine,
  };
}

/** Imports an archive of images into containerd. */
export function importImages(machine: Machine, archive: readonly Uint8Array[]): Promise<void> {
  const [command, args] = toInside(machine, 'ctr', ['--address', RUNTIME, '-n', 'k8s.io', 'images', 'import', '-']);
  const child = spawn(command, args, { stdio: ['pipe', 'ignore', 'pipe'] });
  return new Promise((done, fail) => {
    let errors = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      errors += text;
    });
    child.once('error', fail);
    child.once('close', (code) => (code === 0 ? done() : fail(new Error(`the images were not imported: ${errors}`))));
    child.stdin.once('error', () => undefined);
    for (const piece of archive) child.stdin.write(piece);
    child.stdin.end();
  });
}
