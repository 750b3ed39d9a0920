/** Keeps the control planes of a test run: each is started when the first test asks for it, and all end with the run. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { TestProject } from 'vitest/node';
import { type ControlPlane, startControlPlane, VERSIONS, type Version } from './control-plane.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** Answers `/<version>` with the Connection of that control plane. */
    clusterBroker: string;
  }
}

const planes = new Map<Version, Promise<ControlPlane>>();

/** Run by vitest before the first file; what it gives back runs after the last. */
export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = createServer((request, response) => {
    const version = (request.url ?? '').slice(1);
    if (!isVersion(version)) {
      response.writeHead(404).end(`no version ${version}`);
      return;
    }
    start(version).then(
      ({ connection }) => response.end(JSON.stringify(connection)),
      (thrown: unknown) => response.writeHead(500).end(thrown instanceof Error ? thrown.message : String(thrown)),
    );
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  project.provide('clusterBroker', `http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  return () => end(server);
}

function isVersion(text: string): text is Version {
  return text in VERSIONS;
}

/** One that failed stays so: the next test gets the same reason at once. */
function start(version: Version): Promise<ControlPlane> {
  const known = planes.get(version) ?? startControlPlane(version);
  planes.set(version, known);
  return known;
}

async function end(server: Server): Promise<void> {
  server.close();
  server.closeAllConnections();
  for (const plane of planes.values()) await plane.then((running) => running.stop()).catch(() => undefined);
}
