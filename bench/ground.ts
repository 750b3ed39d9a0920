/** A folder and the processes that belong to it: all gone afterwards. */
import type { ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { end, type Launch, launch, untilListening } from './children.ts';

/** What a stage stands on. */
export class Ground {
  readonly folder = mkdtempSync(join(tmpdir(), 'sidegate-bench-'));
  readonly #children: ChildProcess[] = [];

  /** Starts a server and waits until it takes connections. */
  async start(server: Launch, port: number): Promise<void> {
    const child = launch(server);
    this.#children.push(child);
    await untilListening(child, port);
  }

  /** Ends what was started and removes the folder. */
  async close(): Promise<void> {
    await Promise.all(this.#children.map(end));
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Builds something on fresh ground; where that fails, nothing is left of it. */
export async function onGround<Built>(build: (ground: Ground) => Promise<Built>): Promise<Built> {
  const ground = new Ground();
  try {
    return await build(ground);
  } catch (thrown) {
    await ground.close();
    throw thrown;
  }
}
