/** The other end: an app posts events to its own sidegate, which delivers them through the gates to the app with the ledger. */
import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { makeFolder } from '../support/fixtures.ts';
import { findFreePort } from '../support/free-port.ts';
import { type SmallDisk, startSmallDisk } from '../support/small-disk.ts';
import { GateLives } from './gate-lives.ts';
import { lasts, PATH } from './settings.ts';

/** Each with an endpoint. Few, as each endpoint that fails waits for a time that doubles. */
const TENANTS = 3;
const POSTING_APP = join(import.meta.dirname, 'posting-app.ts');
/** Longer than any fault: no delivery may die. */
const SCHEDULE = ['200ms', '300ms', '500ms', ...Array.from({ length: 46 }, () => '1s')];

/** The provider and the app that posts to it. */
export class SendingSide {
  readonly provider: GateLives;
  readonly disk: SmallDisk | undefined;
  /** Events below this number were accepted. */
  accepted = 0;
  readonly #url: string;
  #child: ChildProcess | undefined;
  /** Events below this number may be posted. */
  #goal = 0;

  private constructor(provider: GateLives, disk: SmallDisk | undefined, port: number) {
    this.provider = provider;
    this.disk = disk;
    this.#url = `http://127.0.0.1:${port}`;
    onTestFinished(() => {
      this.#goal = 0;
      this.kill();
    });
  }

  /** `index` is that of the provider's process among the gates, `port` where it sends deliveries. */
  static async start(index: number, port: number): Promise<SendingSide> {
    const disk = await startSmallDisk();
    const apiPort = await findFreePort();
    const provider = await GateLives.start({
      index,
      folder: makeFolder(),
      ...(disk && { wrapper: disk.wrapper }),
      sections: (dataPort) => ({
        listen: { address: `127.0.0.1:${dataPort}` },
        provider: {
          address: `127.0.0.1:${apiPort}`,
          egress: { allowHttp: true, allowPrivate: ['127.0.0.0/8'] },
          queue: { sqlite: { path: join(disk?.path ?? makeFolder(), 'queue.db'), allowVolatile: true }, retention: '10s' },
          schedule: SCHEDULE,
          timeout: '3s',
          disable: 'off',
          endpoints: Array.from({ length: TENANTS }, (_, i) => ({
            name: `endpoint-${i}`,
            tenant: `tenant-${i}`,
            url: `http://127.0.0.1:${port}${PATH}`,
            concurrency: 8,
            retryClientErrors: 'all',
            secret: { file: 'secret' },
          })),
        },
      }),
    });
    onTestFinished(() => provider.kill());
    return new SendingSide(provider, disk, apiPort);
  }

  /** Lets the app post events up to this number; a multiple of 100. */
  post(goal: number): void {
    this.#goal = goal;
    if (this.#child === undefined && this.accepted < goal) this.#launch();
  }

  /** SIGKILL; the next process posts on. */
  kill(): void {
    this.#child?.kill('SIGKILL');
  }

  /** Resolves when every delivery is done. */
  async idle(): Promise<void> {
    for (;;) {
      await this.provider.scrape();
      const text = this.provider.life.scrape?.text ?? '';
      if (/^sidegate_provider_queue_deliveries\{state="waiting"\} 0$/m.test(text)) return;
      await lasts(200);
    }
  }

  #launch(): void {
    const args = [POSTING_APP, this.#url, String(this.accepted), String(this.#goal), String(TENANTS)];
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    this.#child = child;
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      // A kill may cut the last line.
      for (const line of text.split('\n').slice(0, -1)) this.accepted = Math.max(this.accepted, Number(line));
    });
    child.once('close', () => {
      this.#child = undefined;
      if (this.accepted < this.#goal) this.#launch();
    });
  }
}
