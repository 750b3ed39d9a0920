/**
 * Sends generated requests to a gate in front of a real framework, and compares what the gate allowed with what the app served. A
 * protected handler that serves a request without the proof that its route asks for is a bypass.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { AMBIGUOUS_FORMS } from '../../src/core/head.ts';
import { makeAuthority } from '../support/certificates.ts';
import {
  type Framework,
  type HandlerName,
  type Served,
  startFramework,
  toFrameworkResponse,
} from '../support/frameworks/framework.ts';
import { type Sections, startGate, type TestGate, toRoute } from '../support/gate.ts';
import { readShownConfig, startNginx } from '../support/peers.ts';
import { makeEntry } from '../support/users.ts';
import { type FuzzClient, Http1Client, Http2Client } from './clients.ts';
import { Random } from './random.ts';
import { ACCOUNT_USER, type FuzzRequest, makeRequest, type Proof } from './requests.ts';

/** How requests reach the gate: by HTTP/1.1, by HTTP/2, or by an nginx that asks the forward-auth endpoint. */
export type Front = 'http1' | 'http2' | 'nginx';

/** What is run. */
export interface FuzzOptions {
  readonly framework: Framework;
  readonly front: Front;
  readonly requests: number;
  readonly seed: number;
  /** Over each protected route's match; a run that must find bypasses opts out of the comparison here. */
  readonly match?: Sections;
}

/** A request that reached a handler without the proof that its route asks for. */
export interface Bypass {
  readonly request: FuzzRequest;
  readonly served: Served;
}

/** What came of a run. */
export interface FuzzResult {
  readonly bypasses: readonly Bypass[];
  /** Requests that the app served, by handler. */
  readonly served: Readonly<Record<HandlerName, number>>;
  /** Responses by status; 0 for a connection that was cut off. */
  readonly statuses: ReadonlyMap<number, number>;
}

const PROVES: Readonly<Record<HandlerName, Proof | undefined>> = {
  admin: undefined,
  billing: 'delivery',
  account: 'account',
  open: 'none',
};
const INTERNAL_HOST = 'internal.example';
const CONNECTIONS = 16;

/** Runs `requests` of them. */
export async function fuzz(options: FuzzOptions): Promise<FuzzResult> {
  const app = await startFramework(options.framework);
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-fuzz-'));
  try {
    const setting = await startFront(options, app.port, folder);
    try {
      return await run(options, setting.clients);
    } finally {
      for (const client of setting.clients) client.close();
      await setting.stop();
    }
  } finally {
    await app.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function run({ requests, seed, front }: FuzzOptions, clients: readonly FuzzClient[]): Promise<FuzzResult> {
  const random = new Random(seed);
  const bypasses: Bypass[] = [];
  const served: Record<HandlerName, number> = { admin: 0, billing: 0, account: 0, open: 0 };
  const statuses = new Map<number, number>();
  let left = requests;
  const work = async (client: FuzzClient): Promise<void> => {
    while (left > 0) {
      left--;
      const request = makeRequest(random);
      const response = await client.send(request);
      statuses.set(response.status, (statuses.get(response.status) ?? 0) + 1);
      const found = toFrameworkResponse(`HTTP/1.1 ${response.status}\r\n\r\n${response.body}`).served;
      if (found === undefined) continue;
      served[found.handler]++;
      if (isBypass(request, found, front)) bypasses.push({ request, served: found });
    }
  };
  await Promise.all(clients.map(work));
  return { bypasses, served, statuses };
}

/** What the app understood counts, not what was sent. */
function isBypass({ proof }: FuzzRequest, { handler, host }: Served, front: Front): boolean {
  const name = host.replace(/:\d*$/, '').replace(/\.$/, '').toLowerCase();
  // The forward-auth endpoint sees no body, so it cannot verify a delivery.
  const isProven = PROVES[handler] === proof && !(front === 'nginx' && handler === 'billing');
  return (handler !== 'open' && !isProven) || name === INTERNAL_HOST;
}

interface Setting {
  readonly clients: readonly FuzzClient[];
  stop(): Promise<void>;
}

async function startFront(options: FuzzOptions, appPort: number, folder: string): Promise<Setting> {
  const { front } = options;
  const authority = front === 'http2' ? makeAuthority(folder, 'ca') : undefined;
  const pair = authority?.issue('local', 'DNS:localhost');
  const tls = pair === undefined ? {} : { tls: { certFile: pair.cert, keyFile: pair.key } };
  const gate = await startFuzzedGate(options, appPort, { address: '127.0.0.1:0', ...tls });
  const stop = async (): Promise<void> => void (await gate.stop());
  if (authority !== undefined) {
    const ca = readFileSync(authority.ca);
    return { clients: Array.from({ length: CONNECTIONS }, () => new Http2Client(gate.port, ca)), stop };
  }
  if (front === 'http1') return { clients: Array.from({ length: CONNECTIONS }, () => new Http1Client(gate.port)), stop };
  const nginx = await startNginx(readShownConfig('nginx'), { authzPort: gate.authzPort, appPort });
  return {
    clients: Array.from({ length: CONNECTIONS }, () => new Http1Client(nginx.port)),
    stop: async () => {
      await nginx.stop();
      await stop();
    },
  };
}

/** The routes that the frameworks serve, each with a gate of its own; all else is open. */
function startFuzzedGate({ match = {} }: FuzzOptions, appPort: number, listen: Sections): Promise<TestGate> {
  const upstream = `http://127.0.0.1:${appPort}`;
  const basic = (realm: string): Sections => ({ realm, users: { file: realm }, requireTls: false, limit: 'off' });
  return startGate(
    {
      listen,
      authz: { address: '127.0.0.1:0' },
      routes: [
        { name: 'admin', match: { pathPrefix: '/admin', ...match }, upstream, basic: basic('admins') },
        { name: 'account', match: { path: '/account', ...match }, upstream, basic: basic('accounts') },
        toRoute(appPort, { match: { path: '/hooks/billing', ...match } }),
        { name: 'internal', match: { pathPrefix: '/', host: INTERNAL_HOST }, upstream, basic: basic('admins') },
        // Opens every form that a route can open, so that only the comparison stands between such a target and the app.
        { name: 'open', match: { pathPrefix: '/', allowInPath: [...AMBIGUOUS_FORMS] }, upstream, allow: 'anyone' },
      ],
    },
    undefined,
    { admins: makeEntry('alice', 'correct horse'), accounts: makeEntry(ACCOUNT_USER.name, ACCOUNT_USER.password) },
  );
}

/** A bypass as a person reads it. */
export function formatBypass({ request, served }: Bypass): string {
  const { method, target, host, fields, proof } = request;
  return `${method} ${target} (Host: ${host}; proof: ${proof}; ${JSON.stringify(fields)}) was served by ${served.handler} as ${served.path}`;
}
