/** A real Prometheus on a free port, with a folder of its own. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { until } from './gate.ts';

/** A running Prometheus. */
export interface TestPrometheus {
  /** What its API answers (`/api/v1` stands before the path); throws what it complains of. */
  readonly ask: <T>(path: string, parameters?: Readonly<Record<string, string>>) => Promise<T>;
  readonly stop: () => Promise<void>;
}

const running = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

/** Starts it with a config, and files of rules that the config names. */
export async function startPrometheus(config: object, files: Readonly<Record<string, object>> = {}): Promise<TestPrometheus> {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-prometheus-'));
  for (const [name, content] of Object.entries({ ...files, 'prometheus.yml': config }))
    writeFileSync(join(folder, name), stringify(content));
  const child = spawn(
    'prometheus',
    [
      `--config.file=${join(folder, 'prometheus.yml')}`,
      `--storage.tsdb.path=${join(folder, 'data')}`,
      '--web.listen-address=127.0.0.1:0',
      '--enable-feature=exemplar-storage',
    ],
    { stdio: ['ignore', 'ignore', 'pipe'] },
  );
  running.add(child);
  const ended = new Promise<void>((resolve) => {
    const end = (): void => {
      running.delete(child);
      rmSync(folder, { recursive: true, force: true });
      resolve();
    };
    child.once('exit', end).once('error', end);
  });
  const address = await toAddress(child);
  await until(async () => (await fetch(`http://${address}/-/ready`)).ok);
  return {
    async ask(path, parameters = {}) {
      const answer = await fetch(`http://${address}/api/v1${path}?${new URLSearchParams(parameters)}`);
      const { status, data, error } = (await answer.json()) as { status: string; data: never; error?: string };
      if (status !== 'success') throw new Error(`${error}: ${JSON.stringify(parameters)}`);
      return data;
    },
    async stop() {
      child.kill('SIGKILL');
      await ended;
    },
  };
}

/** Where it says that it listens. */
function toAddress(child: ChildProcess): Promise<string> {
  let text = '';
  return new Promise((resolve, reject) => {
    child.stderr?.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
      const [, address] = /"Listening on" address=(\S+)/.exec(text) ?? [];
      if (address !== undefined) resolve(address);
    });
    child.once('error', reject).once('exit', (code) => reject(new Error(`prometheus ended with ${code}: ${text}`)));
  });
}
