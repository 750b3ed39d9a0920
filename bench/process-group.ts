/** A temporary folder and a group of child processes, which end together. */
import type { ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { end, type Launch, launch, untilListening } from './children.ts';

/** The folder and the processes of an environment. */
export class ProcessGroup {
  readonly folder = mkdtempSync(join(tmpdir(), 'sidegate-bench-'));
  readonly #children: ChildProcess[] = [];

  /** Starts a server and waits until it accepts connections. */
  async start(server: Launch, port: number): Promise<ChildProcess> {
    const child = launch(server);
    this.#children.push(child);
    await untilListening(child, port);
    return child;
  }

  /** Ends the processes and removes the folder. */
  async close(): Promise<void> {
    await Promise.all(this.#children.map(end));
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Builds something on a new group; if that fails, closes the group. */
export async function withProcessGroup<Built>(build: (group: ProcessGroup) => Promise<Built>): Promise<Built> {
  const group = new ProcessGroup();
  try {
    return await build(group);
  } catch (thrown) {
    await group.close();
    throw thrown;
  }
}
