/** Keeps the control planes and the node of a test run: each is started when the first test asks for it, and all end with the run. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { TestProject } from 'vitest/node';
import { NODE_HINDRANCE } from '../node/availability.ts';
import { type RunningNode, startNode } from '../node/node.ts';
import { type Connection, type ControlPlane, startControlPlane, VERSIONS, type Version } from './control-plane.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** Answers `/<version>` with the Connection of that control plane, and `/node` with that of the node. */
    clusterBroker: string;
  }
}

const planes = new Map<Version, Promise<ControlPlane>>();
let node: Promise<RunningNode> | undefined;

/** Run by vitest before the first file; what it gives back runs after the last. */
export async function setup(project: TestProject): Promise<() => Promise<void>> {
  if (NODE_HINDRANCE !== undefined) console.log(`the tests on a real node are skipped: ${NODE_HINDRANCE}`);
  const server = createServer((request, response) => {
    connect((request.url ?? '').slice(1)).then(
      (connection) => response.end(JSON.stringify(connection)),
      (thrown: unknown) => response.writeHead(500).end(thrown instanceof Error ? thrown.message : String(thrown)),
    );
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  project.provide('clusterBroker', `http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  return () => end(server);
}

/** What failed to start stays so: the next test gets the same reason at once. */
async function connect(path: string): Promise<Connection> {
  if (isVersion(path)) return (await start(path)).connection;
  if (!path.startsWith('node')) throw new Error(`there is no ${path}`);
  node ??= startNode();
  const running = await node;
  if (path === 'node/restart') await running.restart();
  return running.connection;
}

function isVersion(text: string): text is Version {
  return text in VERSIONS;
}

function start(version: Version): Promise<ControlPlane> {
  const known = planes.get(version) ?? startControlPlane(version);
  planes.set(version, known);
  return known;
}

async function end(server: Server): Promise<void> {
  server.close();
  server.closeAllConnections();
  const started = [...planes.values(), ...(node === undefined ? [] : [node])];
  for (const each of started) await each.then((running) => running.stop()).catch(() => undefined);
}
