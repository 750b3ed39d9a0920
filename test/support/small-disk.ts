/** Small file systems, which tests can fill up. */
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { makeFolder } from './fixtures.ts';
import { until } from './gate.ts';

const SIZE_MIB = 48;
const SCRIPT = 'mount -t tmpfs -o size=$2m none "$1" && touch "$1/ready" && exec sleep infinity';
/** Lazy: a program that still runs keeps only what it has open. */
const MOUNT =
  'mount -t tmpfs -o size=$2m,mode=0777 none "$1" && echo mounted && cat > /dev/null && umount --lazy "$1"; rmdir "$1"';

/** A folder on a small disk. */
export interface SmallDisk {
  readonly path: string;
  /** The command line that runs a program where the folder is. */
  readonly wrapper: readonly string[];
  /** Takes all the space that is left. */
  readonly fill: () => void;
  readonly free: () => void;
}

/** A disk that only programs in its mount namespace see. Undefined if this machine cannot make mount namespaces. */
export async function startSmallDisk(): Promise<SmallDisk | undefined> {
  const isPossible = spawnSync('unshare', ['-Urm', 'mount', '-t', 'tmpfs', 'none', '/mnt']).status === 0;
  if (!isPossible) return undefined;
  const path = makeFolder();
  const holder = spawn('unshare', ['-Urm', 'sh', '-c', SCRIPT, 'sh', path, String(SIZE_MIB)], { stdio: 'ignore' });
  onTestFinished(() => void holder.kill('SIGKILL'));
  const inside = join(`/proc/${holder.pid}/root`, path);
  await until(() => spawnSync('test', ['-e', join(inside, 'ready')]).status === 0);
  return { path, wrapper: ['nsenter', '-t', String(holder.pid), '-U', '-m', '--preserve-credentials'], ...toFiller(inside) };
}

/** A disk that all programs see, also those of other users. Undefined if this process may not mount, which not even root may in most containers. */
export async function mountSmallDisk(sizeMib: number): Promise<(SmallDisk & { readonly unmount: () => void }) | undefined> {
  const path = mkdtempSync(join(tmpdir(), 'sidegate-disk-'));
  // It ends with its standard input, also if this process is killed.
  const holder = spawn('sh', ['-c', MOUNT, 'sh', path, String(sizeMib)], { stdio: ['pipe', 'pipe', 'ignore'], detached: true });
  const isMounted = await new Promise((resolve) => {
    holder.stdout.once('data', () => resolve(true));
    holder.once('close', () => resolve(false));
  });
  return isMounted === true ? { path, wrapper: [], unmount: () => void holder.stdin.end(), ...toFiller(path) } : undefined;
}

function toFiller(folder: string): Pick<SmallDisk, 'fill' | 'free'> {
  const file = join(folder, 'filler');
  return {
    fill() {
      // The last bytes too: a write that fails leaves what fitted.
      for (const size of [1 << 20, 4_096]) fillWith(file, size);
    },
    free: () => rmSync(file, { force: true }),
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
