/** A real injector in this process, on free ports, with the test's own API server. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { systemClock } from '../../src/core/clock.ts';
import { Injector } from '../../src/kubernetes/admission/injector.ts';
import { parseInjectorConfig } from '../../src/kubernetes/injector/injector-config.ts';
import { createLogger } from '../../src/telemetry/log/logger.ts';
import { type AnswerWith, type ApiServer, startApiServer, toClient } from './api-server.ts';
import type { Sections } from './gate.ts';

/** One that runs. */
export interface TestInjector {
  readonly api: ApiServer;
  readonly port: number;
  readonly folder: string;
  readonly log: () => Record<string, unknown>[];
  readonly ready: () => Promise<{ readonly status: number; readonly text: string }>;
  readonly metric: (series: string) => Promise<number>;
  readonly send: (content: string | Buffer, options?: SendOptions) => Promise<Reply>;
  readonly stop: () => Promise<boolean>;
}

/** How a request differs from the API server's own. */
export interface SendOptions {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** PEM; left out: any certificate is taken. */
  readonly ca?: Buffer;
  readonly cert?: Buffer;
  readonly key?: Buffer;
}

/** What came back. */
export interface Reply {
  readonly status: number;
  readonly text: string;
}

/** Starts it against an API server that answers as the test says. */
export async function startInjector(answer: AnswerWith, toServer: (folder: string) => Sections): Promise<TestInjector> {
  const api = await startApiServer(answer);
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-injector-'));
  const addresses = { address: '127.0.0.1:0', adminAddress: '127.0.0.1:0', shutdown: { grace: '0ms', drain: '2s' } };
  const text = stringify({ sidecar: { image: 'registry.example/sidegate:1' }, server: { ...addresses, ...toServer(folder) } });
  writeFileSync(join(folder, 'injector.yaml'), text);
  const { config, problems } = parseInjectorConfig('injector.yaml', text);
  if (config?.server === undefined) throw new Error(JSON.stringify(problems));
  const { clientAuth } = config.server;
  const clientCa = clientAuth === undefined ? undefined : readFileSync(clientAuth.caFile);
  const lines: string[] = [];
  const logger = createLogger({ level: 'debug', version: '1', destination: { write: (line) => void lines.push(line) } });
  const kube = toClient(api);
  const parts = {
    config,
    server: config.server,
    clientCa,
    kube,
    clock: systemClock,
    logger,
    version: '1',
    instance: 'injector-0',
  };
  const injector = new Injector(parts);
  const { data, admin } = await injector.start();
  const get = async (path: string): Promise<Reply> => {
    const answered = await fetch(`http://127.0.0.1:${admin.port}${path}`);
    return { status: answered.status, text: await answered.text() };
  };
  return {
    api,
    port: data.port,
    folder,
    log: () => lines.map((line) => JSON.parse(line) as Record<string, unknown>),
    ready: () => get('/readyz'),
    async metric(series) {
      const line = (await get('/metrics')).text.split('\n').find((each) => each.startsWith(`${series} `));
      return Number(line?.split(' ').at(-1));
    },
    send: (content, options = {}) => send(data.port, content, options),
    async stop() {
      const isFinished = await injector.stop();
      await api.stop();
      rmSync(folder, { recursive: true, force: true });
      return isFinished;
    },
  };
}

function send(port: number, content: string | Buffer, options: SendOptions): Promise<Reply> {
  const { method = 'POST', path = '/inject?timeout=5s', headers = { 'Content-Type': 'application/json' }, ca, ...pair } = options;
  const trust = ca === undefined ? { rejectUnauthorized: false } : { ca, servername: 'injector.gate.svc' };
  return new Promise((done, fail) => {
    const agent = new Agent({ keepAlive: false });
    const outgoing = request({ host: '127.0.0.1', port, path, method, headers, agent, ...trust, ...pair }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk;
      });
      response.once('end', () => done({ status: response.statusCode ?? 0, text }));
    });
    outgoing.once('error', fail);
    outgoing.end(content);
  });
}
