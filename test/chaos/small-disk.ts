/** A small file system in a mount namespace, which tests can fill up. */
import { spawn, spawnSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { makeFolder } from '../support/fixtures.ts';
import { until } from '../support/gate.ts';

const SIZE_MIB = 48;
const SCRIPT = 'mount -t tmpfs -o size=$2m none "$1" && touch "$1/ready" && exec sleep infinity';

/** A folder on a small disk. */
export interface SmallDisk {
  readonly path: string;
  /** The command line that runs a program where the folder is. */
  readonly wrapper: readonly string[];
  /** Takes all the space that is left. */
  readonly fill: () => void;
  readonly free: () => void;
}

/** Undefined if this machine cannot make mount namespaces. */
export async function startSmallDisk(): Promise<SmallDisk | undefined> {
  const isPossible = spawnSync('unshare', ['-Urm', 'mount', '-t', 'tmpfs', 'none', '/mnt']).status === 0;
  if (!isPossible) return undefined;
  const path = makeFolder();
  const holder = spawn('unshare', ['-Urm', 'sh', '-c', SCRIPT, 'sh', path, String(SIZE_MIB)], { stdio: 'ignore' });
  onTestFinished(() => void holder.kill('SIGKILL'));
  const inside = join(`/proc/${holder.pid}/root`, path);
  await until(() => spawnSync('test', ['-e', join(inside, 'ready')]).status === 0);
  const filler = join(inside, 'filler');
  return {
    path,
    wrapper: ['nsenter', '-t', String(holder.pid), '-U', '-m', '--preserve-credentials'],
    fill() {
      // The last bytes too: a write that fails leaves what fitted.
      for (const size of [1 << 20, 4_096]) fillWith(filler, size);
    },
    free: () => rmSync(filler, { force: true }),
  };
}

function fillWith(file: string, size: number): void {
  const block = Buffer.alloc(size, 1);
  try {
    for (;;) writeFileSync(file, block, { flag: 'a' });
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code !== 'ENOSPC') throw thrown;
  }
}
